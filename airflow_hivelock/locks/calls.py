"""The rules of take-over: of two calls of one owner, only the later one can act.

These are pure functions over plain values, like :mod:`.queueing`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_hivelock.locks.model import Lock


class Call(NamedTuple):
    """A call of an owner. The larger of two calls is the later one.

    :param attempt: the owner's attempt.
    :param began: the store's number at the start of the call. It orders the calls of one attempt.
    :param process: orders two calls with the same number.
    """

    attempt: int
    began: int
    process: str = ""


def stale(call: Call, other: Call, *, ended: bool = False) -> bool:
    """Whether *call* must stop because of *other*, a call of the same owner.

    :param ended: the lease of *other* has ended. *call* must then be later than *other* to acquire again.
    """
    return call <= other if ended else call < other


class Earlier(NamedTuple):
    """The store's data about the last call of an owner.

    :param call: the last call. If the store numbers the ends of leases, *began* is the number of the end.
    :param active: its request waits, or holds its locks.
    :param ended: its lease has ended.
    :param locks: the locks that it asked for.
    :param named: the text of the plan that *locks* is from; "" if there is none.
    :param gave_back: a part of the lease was released.
    :param withdrawn: it has *ended* without a lease, because a person withdrew the request.
    """

    call: Call
    active: bool
    ended: bool
    locks: Collection[Lock]
    named: str = ""
    gave_back: bool = False
    withdrawn: bool = False


class Start(enum.Enum):
    """How a call starts, with the reason."""

    FRESH = "the owner has no request: this is a new one"
    TAKE_OVER = "the owner's request is the same: this call continues it"
    STALE = "a later call acts for the owner, or has released the lease: this call must stop"
    MISMATCH = "the owner waits for or holds other locks"


def take_over(call: Call, locks: Collection[Lock], named: str, earlier: Earlier | None) -> Start:
    """How a *call* for *locks* starts if its owner's last call was *earlier*.

    A request that was planned from a text is the same if the text is the same, because the table can have more
    partitions at the second attempt. After a partial release, the call must also ask for the same locks.
    """
    if earlier is not None and stale(call, earlier.call, ended=earlier.ended):
        return Start.STALE
    if earlier is None or not earlier.active:
        return Start.FRESH
    same = named == earlier.named if named and not earlier.gave_back else tuple(locks) == tuple(earlier.locks)
    return Start.TAKE_OVER if same else Start.MISMATCH
