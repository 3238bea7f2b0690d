"""Processes that a task has forked, without a program of their own. They have its mark only in an open file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from airflow_hivelock import hold
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from airflow_hivelock.locks import LockManager
    from tests.airflow.conftest import Run as Python

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux shows the open files of a process")

TASK = """
import multiprocessing, time
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes, mark_file
here = Processes()
with mark_file(here.mark):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
    child.start()
    print(applications.encode(here), child.pid, sep="\\n", flush=True)
    time.sleep(300)
"""


def has_mark_file() -> bool:
    files = [Path("/proc/self/fd") / each for each in os.listdir("/proc/self/fd")]
    return any("airflow-hivelock-" in str(each.readlink()) for each in files if each.is_symlink())


def test_a_forked_worker_is_found_and_killed_after_its_task_was() -> None:
    with subprocess.Popen([sys.executable, "-c", TASK], stdout=subprocess.PIPE, text=True) as task:
        assert task.stdout is not None
        recorded, child = applications.decode(task.stdout.readline().strip()), int(task.stdout.readline())
        task.kill()
    assert isinstance(recorded, Processes)
    try:
        assert list(recorded.living()) == [child]
        recorded.stop()
        assert not recorded.running()
    finally:
        if psutil.pid_exists(child):
            psutil.Process(child).kill()


def test_the_file_is_open_only_while_the_work_runs(manager: LockManager, python: Python) -> None:
    found = []

    def work() -> None:
        with hold(writes=["dw.a"]):
            found.append(has_mark_file())
        found.append(has_mark_file())

    python(work)
    assert found == [True, False]
    assert manager.leases() == []


def test_hidden_processes_are_not_taken_for_ended_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Processes(pid=0, user_id=os.geteuid() + 1)
    monkeypatch.setattr(os, "geteuid", lambda: recorded.user_id + 1)
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != "/proc/1" and exists(path))
    with pytest.raises(CannotTell, match=r"cannot see processes of other users. Mount /proc without hidepid=2"):
        recorded.running()
