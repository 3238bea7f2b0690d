"""A process of one version. It reads commands as lines of JSON, and answers each with a line.

It is run by its path, with its version's folder first on PYTHONPATH, so it imports nothing of the tests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import select
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import airflow_hivelock
from airflow_hivelock.locks import Lease, LockLost, LockManager, connect

if TYPE_CHECKING:
    from airflow_hivelock.spec import Owner

SECONDS = 60.0


class Actor:
    """What a component does with the lock store, one method for each command."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.manager: LockManager = connect(url)
        self.lease: Lease | None = None

    def acquire(self, owner: str, writes: list[str], attempt: int = 1, timeout_s: float = SECONDS) -> Any:
        self.lease = self.manager.acquire(owner=owner, writes=writes, attempt=attempt, timeout_s=timeout_s)
        return self.lease.to_json()

    def take(self, lease: dict[str, Any]) -> Any:
        """A lease that a task has passed on by an XCom."""
        self.lease = Lease.from_json(lease)
        return self.lease.to_json()

    def use(self) -> Any:
        """Renew and verify the lease, and start work under it."""
        assert self.lease
        self.manager.renew(self.lease)
        self.manager.verify(self.lease)
        self.lease = self.manager.start_work(self.lease, "work", "{}")
        self.manager.record_work(self.lease, "work", None)
        return self.lease.token

    def release(self) -> Any:
        assert self.lease
        return self.manager.release(self.lease)

    def force(self, lease_id: str) -> Any:
        return self.manager.force_release(lease_id, reason="a test", user="ops")

    def page(self) -> Any:
        from airflow_hivelock.ui import view

        leases, waiters = self.manager.requests()
        shown = view.current(leases, waiters, None, "here").data
        audit = view.audit(self.manager.audit(), "here").data
        return [len(shown["leases"]), len(shown["waiters"]), len(audit["entries"])]

    def cli(self) -> Any:
        from airflow_hivelock.cli.command import main

        return main(["--url", self.url, "-e", "SHOW LEASE *"])

    def keep(self) -> Any:
        """One round of the keeper: runs called "over" have ended. Return the leases that it finds suspect."""
        from airflow_hivelock.settings import Settings
        from airflow_hivelock.triggers import keeper
        from airflow_hivelock.triggers.work_checks import WorkChecks
        from airflow_hivelock.work.stale import Verdict

        class Ended(WorkChecks):
            """All work has ended."""

            async def verdict(self, lease_id: str, judge: Any) -> Verdict:
                verdict: Verdict = judge.args[-1]
                return verdict

        class Keeper(keeper.HiveLockKeeper):
            async def _load(self) -> Any:
                return SimpleNamespace(
                    settings=Settings(actor.url, "here"), installation="here", manager=_manager
                ), True

            async def _judge(self, owned: Any, aside: Any) -> Any:
                over = {lease.id: Verdict(True, "its run is over") for owner, lease in owned if owner.run_id == "over"}
                return over, []

            async def _lapses(self, owner: Owner) -> bool:
                return False

        actor = self
        changed: Any = keeper
        changed.SETTLE_S, changed._is_due = 0.0, lambda lease, now: True

        def _manager() -> LockManager:
            return actor.manager

        made = Keeper("locks", colour="red", min_reader=4, format=5)
        made._checks = Ended(made._threads)
        return asyncio.run(made._keep())

    def defers(self) -> Any:
        """A trigger's arguments as a worker of this version gives them."""
        from airflow_hivelock.triggers.lock import HiveLockTrigger

        further: dict[str, Any] = {"colour": "red"} if airflow_hivelock.__version__ != "0.1.0" else {}
        made = HiveLockTrigger(
            hivelock_conn_id="locks",
            reads=[],
            writes=["dw.t"],
            lease_s=60.0,
            owner="here/d/r/t/-1",
            attempt=1,
            **further,
        )
        return list(made.serialize())

    def waits(self, path: str, arguments: dict[str, Any]) -> Any:
        """The trigger in a triggerer of this version, up to its request."""
        from airflow_hivelock.triggers.lock import HiveLockTrigger

        made = HiveLockTrigger(**arguments)
        made._further.check(made.log)
        return [path.rpartition(".")[2], list(made._spec().writes), made.serialize()[1].items() >= arguments.items()]


def work(url: str, owner: str, attempt: int, folder: Path, seed: int) -> None:
    """Take and give back locks until the input ends, and note when this owner holds what."""
    dice = random.Random(seed)
    said = folder / f"{owner.replace('/', '_')}.wants"
    with connect(url) as manager, (folder / "notes").open("a", buffering=1) as notes:
        while not select.select([sys.stdin], [], [], 0)[0] or said.exists():
            wanted = said.read_text() if said.exists() else f"dw.t{dice.randrange(2)}/d={dice.randrange(3)}"
            begun = said.with_suffix(".begun")  # so that a process that is killed while it writes leaves no empty file
            begun.write_text(wanted)
            begun.replace(said)
            try:
                lease = manager.acquire(owner=owner, writes=[wanted], attempt=attempt, timeout_s=SECONDS)
                notes.write(f"begin {owner} {wanted} {time.time():.6f}\n")
                time.sleep(dice.random() * 0.02)
                manager.verify(lease)
                notes.write(f"end {owner} {wanted} {time.time():.6f}\n")
                manager.release(lease)
                said.unlink()  # after the release: a process that is killed before it leaves its lease to the next one
            except LockLost as error:
                notes.write(f"lost {owner} {wanted} {time.time():.6f} {error}\n")
                said.unlink(missing_ok=True)


def main() -> None:
    if sys.argv[1] == "work":
        url, owner, attempt, folder, seed = sys.argv[2:]
        work(url, owner, int(attempt), Path(folder), int(seed))
        return
    logging.basicConfig(level=logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of commands do not mix with the answers
    actor: Actor | None = None
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer: Any
        try:
            if name == "connect":
                actor = Actor(sys.argv[1])
                answer = airflow_hivelock.__version__
            else:
                answer = getattr(actor, name)(**arguments)
        except Exception as error:  # noqa: BLE001 - the parent judges it
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
