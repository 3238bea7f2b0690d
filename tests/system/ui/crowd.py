"""Many leases and waiters in a lock store, to measure what a look at all of them costs: ``python -m tests.system.ui.crowd``."""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import connect, rules
from airflow_hivelock.spec import Owner
from airflow_hivelock.ui import view
from tests.support.servers import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.ui.view import View

TABLES = 40
PARTITIONS = 2
"""Of one lease; with the database, the table and the day above them it has three locks more."""


def fill(manager: LockManager, leases: int = 1_000, waiters: int = 1_000, installation: str = "test") -> None:
    """*leases* of five locks each, and *waiters*; half of them want the same partition."""
    for number in range(leases):
        manager.acquire(
            owner=str(Owner(installation, f"dag_{number % 100}", f"scheduled__2013-{number:05}", "load")),
            writes=[f"dw.table_{number % TABLES}/dt=d{number:05}/hr={hour}" for hour in range(PARTITIONS)],
            query="INSERT OVERWRITE …",
        )
    for number in range(waiters):
        wanted = 0 if number % 2 else number % leases
        owner = str(Owner(installation, f"late_{number % 50}", f"manual__{number:05}", "load"))
        request = rules.request(owner, writes=[f"dw.table_{wanted % TABLES}/dt=d{wanted:05}/hr=0"])
        manager.begin(request, _ignore).poll()


@contextmanager
def round_trips(manager: LockManager) -> Iterator[list[int]]:
    """How many requests go out with each wait for ZooKeeper, while this is open."""
    session: Any = manager.backend.store.client  # type: ignore[attr-defined]
    submit, send, sent = session.submit, session._send, []

    def counted_submit(*requests: Any) -> Any:
        sent.append(0)
        return submit(*requests)

    def counted_send(*requests: Any) -> Any:
        sent[-1] += 1
        return send(*requests)

    session.submit, session._send = counted_submit, counted_send
    try:
        yield sent
    finally:
        session.submit, session._send = submit, send


def _ignore() -> None:
    """A wake-up without a listener."""


def _timed(what: str, call: Callable[[], object], times: int = 3) -> None:
    took = []
    for _ in range(times):
        cpu, wall = time.process_time(), time.monotonic()
        call()
        took.append(f"{1000 * (time.process_time() - cpu):5.0f} ms CPU {1000 * (time.monotonic() - wall):6.0f} ms")
    print(f"{what:<18}{'    '.join(took)}")


def main() -> None:
    """Fill a new ZooKeeper and time each look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=1_000)
    parser.add_argument("--waiters", type=int, default=1_000)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(ZooKeeperServer(Path(folder)))
        writer = stack.enter_context(connect(server.url))
        started = time.monotonic()
        fill(writer, arguments.leases, arguments.waiters)
        print(f"filled in {time.monotonic() - started:.0f} s")
        reader = stack.enter_context(connect(server.url))
        for look in ("show", "leases", "waiters", "history", "audit", "now"):
            _timed(look, getattr(reader, look))
        shown_locks = view.ShownLocks(0, reader.show())

        def refresh() -> View:
            return view.current(*reader.requests(), shown_locks, "test")

        _timed("refresh", refresh)
        shown = refresh()
        text = json.dumps(shown.data)
        _timed("is it the same", lambda: shown == refresh())
        _timed("as JSON", lambda: json.dumps(shown.data))
        print(f"{len(text):,} bytes, {len(gzip.compress(text.encode(), 5)):,} compressed")


if __name__ == "__main__":
    main()
