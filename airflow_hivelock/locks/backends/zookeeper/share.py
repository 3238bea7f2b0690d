"""What a record contains about the group that limits its request's leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from airflow_hivelock.locks import validate

if TYPE_CHECKING:
    from airflow_hivelock.locks.model import LeaseLimit


class Share(NamedTuple):
    """What a record says of the group whose leases its request is counted among.

    :param most: how many leases of *group* may stand, its own included.
    :param permit: the number of its permit, which it has from the grant to the end of the lease; None: it has none.
    :param ticket: its node in the group's queue; ``""``: it does not stand there.
    :param place: its constant place in that queue, chosen when it is parked first; 0 before.
    :param placed_ms: when that place was first taken, by the store's clock; 0 where that is when the request asked.
    """

    group: str
    most: int
    permit: int | None = None
    ticket: str = ""
    place: int = 0
    placed_ms: int = 0

    @classmethod
    def of(cls, limit: LeaseLimit) -> Self:
        return cls(limit.group, limit.most)

    def check(self) -> None:
        """:raises ValueError: it says what no record of ours does."""
        validate.texts(self._asdict(), ("group", "ticket"))
        validate.numbers(self._asdict(), ("most", "place"))
        validate.number(self.placed_ms, "placed_ms", validate.MOST_MS)
        if self.permit is not None:
            validate.number(self.permit, "permit")
        if not self.group or not self.most or "/" in self.ticket:
            raise ValueError("no group of leases")
