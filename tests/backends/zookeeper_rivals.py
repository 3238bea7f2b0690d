"""Sessions of ours that something comes in between, for the tests of the protocol."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.locks.backends.zookeeper.client import Commit, Delete, Refused, Request, SetData
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession

if TYPE_CHECKING:
    from collections.abc import Callable


WAIT_S = 20


class HeldUp(KazooSession):
    """One thread's next deletion is answered, but its thread does not go on before it may."""

    thread: threading.Thread | None = None

    def __init__(self, hosts: str) -> None:
        super().__init__(hosts)
        self.answered, self.may_go_on = threading.Event(), threading.Event()

    def submit(self, *requests: Request) -> list[Any]:
        replies = super().submit(*requests)
        if threading.current_thread() is self.thread and deletes(requests) and not self.answered.is_set():
            self.answered.set()
            assert self.may_go_on.wait(WAIT_S)
        return replies


def deletes(requests: tuple[Request, ...]) -> bool:
    return any(isinstance(op, Delete) for each in requests if isinstance(each, Commit) for op in each.ops)


class Overtaken(KazooSession):
    """Before its next grant another client acts."""

    other: Callable[[], object] | None = None
    overtaken = False

    def submit(self, *requests: Request) -> list[Any]:
        if self.other is not None and any(isinstance(r, Commit) and grants(r) for r in requests):
            self.overtake()
        return super().submit(*requests)

    def overtake(self) -> None:
        other, self.other, self.overtaken = self.other, None, True
        assert other
        other()


def grants(commit: Commit) -> bool:
    return any(isinstance(op, SetData) and b'"state":"granted"' in op.data for op in commit.ops)


def is_grant(requests: tuple[Request, ...]) -> bool:
    """Whether the first of them creates lock nodes, and the others verify what it has granted."""
    return bool(requests) and isinstance(requests[0], Commit) and grants(requests[0])


class Verifying(Overtaken):
    """Between the transaction that creates its lock nodes and the reads behind it, another client does something."""

    def submit(self, *requests: Request) -> list[Any]:
        if self.other is None or not is_grant(requests):
            return super().submit(*requests)
        written = KazooSession.submit(self, requests[0])
        if not isinstance(written[0], Refused):
            self.overtake()
        return written + super().submit(*requests[1:])


class Dying(Overtaken):
    """Its process dies once its lock nodes exist, before it has verified them."""

    def submit(self, *requests: Request) -> list[Any]:
        if not is_grant(requests):
            return super().submit(*requests)
        replies = super().submit(requests[0])
        if isinstance(replies[0], Refused):
            return replies + super().submit(*requests[1:])
        self.close()
        raise StoreUnavailable("dead")
