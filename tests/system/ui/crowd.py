"""Many leases and waiters in a lock store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import rules
from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks import LockManager

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
