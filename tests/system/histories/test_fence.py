"""A process is stopped at its work, loses its lock, and goes on: what the token is for, and what it does not do alone.

However well locks are kept, what a process writes may arrive after its lock has gone. Unless the store compares, the
update of the process that held the lock by then is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import connect
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from tests.system.histories import counting
from tests.system.histories.trace.validate import validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Counter:
    """A process that counts, one answer at a time."""

    process: subprocess.Popen[str]

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def write(self) -> str:
        """Let it write what it has counted; whether that was ``written`` or ``refused``."""
        assert self.process.stdin
        print(file=self.process.stdin, flush=True)
        return self.hear()

    def stop(self) -> None:
        """The process is stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("fence", "loss", "late"),
    [
        ("none", "force released", "written"),
        ("token", "force released", "refused"),
        ("token and epoch", "force released", "refused"),
        ("none", "taken over", "written"),
        ("token", "taken over", "refused"),  # in ZooKeeper; elsewhere a lease keeps its token when it is taken over
        ("token and epoch", "taken over", "refused"),
    ],
)
def test_the_late_write_of_a_process_that_has_lost_its_lock_undoes_an_update_unless_it_is_fenced(
    fence: str, loss: str, late: str, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    url, store = f"zookeeper://{zookeeper.hosts}/{tmp_path.name}?root=/locks-{tmp_path.name}", tmp_path / "counter"
    counting.create(store)
    with ExitStack() as undo:

        def start(owner: str, attempt: int) -> Counter:
            command = [
                sys.executable,
                "-m",
                "tests.system.histories.counting",
                url,
                str(store),
                fence,
                owner,
                str(attempt),
            ]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            undo.enter_context(process)
            undo.callback(process.kill)
            return Counter(process)

        first = start("task", 0)
        assert first.hear() == "read"
        first.stop()
        if loss == "taken over":
            second = start("task", 1)
        else:
            with connect(url) as manager:
                lease = manager.lease_of("task")
                assert lease
                assert manager.force_release(lease.id, reason="its process does not answer", user="test")
            second = start("another", 0)
        assert second.hear() == "read"
        answers = [second.write()]
        first.resume()
        answers.append(first.write())
        assert answers == ["written", late]
        lost = answers.count("written") - counting.read(store)
        assert lost == (1 if late == "written" else 0)
    trace = validate(transactions([zookeeper]), Layout(f"/{tmp_path.name}", f"/locks-{tmp_path.name}"))
    trace.processes = 2
    print(trace)
    assert not trace.wrong, "\n".join(trace.wrong)
    assert trace.actions["take_over" if loss == "taken over" else "keeper_frees"]
