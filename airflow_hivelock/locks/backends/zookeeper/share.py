"""A request's part in its group of leases."""

from __future__ import annotations

from typing import NamedTuple

from airflow_hivelock.locks import validate


class Share(NamedTuple):
    """A request's part in its group of leases.

    :param most: how many leases of *group* may be held, its own included, unless the store has a limit of the group.
    :param permit: the number of its permit, from the invitation or grant to the end of the lease; None: it has none. A
        heavy request has more of them (:attr:`.Record.permits`).
    :param ticket: its node in the group's queue; ``""``: it has none there.
    :param number: of its position in that queue. It is chosen once, when the request is first parked, at *since_ms*; 0
        before.
    """

    group: str
    most: int
    permit: int | None = None
    ticket: str = ""
    number: int = 0
    since_ms: int = 0

    def check(self) -> None:
        """Check the values.

        :raises ValueError: this package writes no such record.
        """
        validate.texts(self._asdict(), ("group", "ticket"))
        validate.numbers(self._asdict(), ("most", "number"))
        validate.number(self.since_ms, "since_ms", validate.MOST_MS)
        if self.permit is not None:
            validate.number(self.permit, "permit")
        if not self.group or not self.most or "/" in self.ticket:
            raise ValueError("not a group of leases")
