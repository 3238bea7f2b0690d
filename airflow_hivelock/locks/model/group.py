"""Groups of leases: a request's part in one, and what the lock store keeps about one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_hivelock.locks.invalid import InvalidRequest

MAX_GROUP_LENGTH = 250
MAX_COMMENT_LENGTH = 500
MAX_LEASES = 10_000
MAX_WEIGHT = 100
"""A request takes all its permits in one transaction, so there is a bound."""


@dataclass(frozen=True)
class LeaseLimit:
    """A bound on the leases that a group holds at a time: a counting semaphore in addition to the locks.

    The permits are taken with the locks or with the invitation, all or nothing, and are given back with them. A request
    that waits for them holds no lock, and blocks no request for locks.

    :param group: the leases of this group are counted, over all clients of the lock store.
    :param most: how many leases the group may hold, this one included, unless the lock store has a limit of the group
        (:class:`Group`). If requests of one group then give different numbers, each request is held to its own.
    :param weight: how many permits this request takes; 0: the group's default, or 1.
    """

    group: str
    most: int = MAX_LEASES
    weight: int = 0

    def __post_init__(self) -> None:
        check_name(self.group)
        _check_number(f"max_leases={self.most!r} of group {self.group!r}", self.most, MAX_LEASES)
        if isinstance(self.weight, bool) or self.weight != 0:
            check_weight(self.weight, f"of a request of group {self.group!r}")

    def __str__(self) -> str:
        return f"one of the leases of {self.group!r}"


@dataclass(frozen=True)
class Group:
    """The settings of a group in the lock store. They apply to all its requests from now on, without a deploy.

    :param name: the group, as requests name it.
    :param leases: how many leases the group may hold at a time. It replaces the limits that requests give.
    :param weight: how many of these a request counts for that does not give a weight itself.
    :param comment: a text for people.
    """

    name: str
    leases: int
    weight: int = 1
    comment: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_number(f"leases={self.leases!r} of group {self.name!r}", self.leases, MAX_LEASES)
        check_weight(self.weight, f"the default of group {self.name!r}")
        if self.weight > self.leases:
            raise InvalidRequest(
                f"the default weight {self.weight} of group {self.name!r} is above its {self.leases} leases, so no request would "
                "ever be granted. Give more leases, or a smaller weight"
            )
        if (
            not isinstance(self.comment, str)
            or not self.comment.isprintable()
            or len(self.comment) > MAX_COMMENT_LENGTH
        ):
            raise InvalidRequest(
                f"the comment of group {self.name!r} must be one printable line of at most {MAX_COMMENT_LENGTH} characters"
            )

    def __str__(self) -> str:
        weight = f", default weight {self.weight}" if self.weight != 1 else ""
        return f"{self.leases} {'lease' if self.leases == 1 else 'leases'}{weight}" + (
            f" ({self.comment})" if self.comment else ""
        )


@dataclass(frozen=True)
class Member:
    """A request in a group.

    :param weight: how many permits it has, or waits for.
    """

    owner: str
    weight: int = 1

    def __str__(self) -> str:
        return self.owner if self.weight == 1 else f"{self.owner} ({self.weight})"


@dataclass(frozen=True)
class GroupUse:
    """A group at one moment.

    :param stored: its settings in the lock store; None: there are none, and each request gives its own limit.
    :param holding: the requests that have permits: leases, and invited requests.
    :param waiting: the requests that wait for permits, in their order.
    """

    name: str
    stored: Group | None
    holding: tuple[Member, ...] = ()
    waiting: tuple[Member, ...] = ()

    @property
    def taken(self) -> int:
        """How many permits are taken."""
        return sum(member.weight for member in self.holding)


def check_name(group: object) -> None:
    """Check the name of a group.

    :raises InvalidRequest: it is no name.
    """
    if not isinstance(group, str) or not group.strip() or not group.isprintable():
        raise InvalidRequest(f"{group!r:.80} is not a group of leases. Name it in printable characters")
    if len(group) > MAX_GROUP_LENGTH:
        raise InvalidRequest(f"group {group[:40]!r}… is longer than {MAX_GROUP_LENGTH} characters")


def check_weight(weight: object, whose: str) -> None:
    """Check a weight.

    :raises InvalidRequest: it is no weight.
    """
    _check_number(f"weight={weight!r}, {whose},", weight, MAX_WEIGHT)


def _check_number(what: str, number: Any, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise InvalidRequest(f"{what} is invalid. Give a whole number from 1 to {most:,}")
