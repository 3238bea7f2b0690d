"""Nothing that a component forked outlives it, or the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.airflow_server import session
from tests.support.patience import until

# A session's leader. Its child moves to a process group of its own, as Airflow's tasks do.
FAMILY = "import os, subprocess, time; subprocess.Popen(['sleep', '600'], process_group=0); time.sleep(600)"
TIMEOUT_S = 20


def start_family() -> subprocess.Popen[bytes]:
    leader = subprocess.Popen([sys.executable, "-c", FAMILY], start_new_session=True)
    until(lambda: len(session.members(leader.pid)) == 2, "its child", TIMEOUT_S)
    return leader


def test_kill_reaches_members_in_other_process_groups() -> None:
    with start_family() as leader:
        first, second = session.members(leader.pid)
        assert first == leader.pid
        assert os.getpgid(second) != leader.pid
        session.kill(leader.pid)
        assert session.members(leader.pid) == []


def test_the_guard_ends_what_it_watches_and_only_that_when_its_parent_dies() -> None:
    with start_family() as watched, start_family() as forgotten:
        lines = f"+{watched.pid}\n+{forgotten.pid}\n-{forgotten.pid}\n"
        subprocess.run([sys.executable, "-I", session.__file__], input=lines, text=True, check=True, timeout=TIMEOUT_S)
        assert session.members(watched.pid) == []
        assert len(session.members(forgotten.pid)) == 2
        session.kill(forgotten.pid)
