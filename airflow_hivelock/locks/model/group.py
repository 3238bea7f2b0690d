"""Groups of leases: the limit of a request, the settings in the lock store, and the members of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_hivelock.locks.invalid import InvalidRequest

MAX_GROUP_LENGTH = 250
MAX_COMMENT_LENGTH = 500
MAX_LEASES = 10_000
MAX_WEIGHT = 100
"""A request takes all its permits in one transaction, and its size is limited."""


@dataclass(frozen=True)
class LeaseLimit:
    """A limit on the leases that a group holds at a time. It is a counting semaphore in addition to the locks.

    A request takes its permits together with its locks or its invitation, and gives them back together. While it waits
    for a permit, it holds no lock and blocks no request for locks.

    :param group: the group whose leases are counted, over all clients of the lock store.
    :param most: how many leases the group may hold, including this one. A limit in the lock store (:class:`Group`)
        replaces it. Without that, each request of the group has its own limit.
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
    """The settings of a group in the lock store. They apply to each later grant, without a change of a DAG.

    :param name: the name of the group, as in ``lease_group``.
    :param leases: how many leases the group may hold at a time. This replaces the requests' own limits.
    :param weight: how many leases a request counts for if it sets no weight.
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
                f"the default weight {self.weight} of group {self.name!r} is above its limit of {self.leases} leases, so no request "
                "would ever be granted. Raise the limit, or lower the weight"
            )
        if (
            not isinstance(self.comment, str)
            or not self.comment.isprintable()
            or len(self.comment) > MAX_COMMENT_LENGTH
        ):
            raise InvalidRequest(
                f"the comment of group {self.name!r} is invalid. Give one line of at most {MAX_COMMENT_LENGTH} printable characters"
            )

    def __str__(self) -> str:
        weight = f", default weight {self.weight}" if self.weight != 1 else ""
        return f"{self.leases} {'lease' if self.leases == 1 else 'leases'}{weight}" + (
            f" ({self.comment})" if self.comment else ""
        )


@dataclass(frozen=True)
class Member:
    """A request of a group.

    :param weight: how many permits it has or waits for.
    """

    owner: str
    weight: int = 1

    def __str__(self) -> str:
        return self.owner if self.weight == 1 else f"{self.owner} ({self.weight})"


@dataclass(frozen=True)
class GroupUse:
    """A group at one moment.

    :param stored: its settings in the lock store; None: it has none, and each request has its own limit.
    :param holding: the requests that have permits: leases and invited requests.
    :param waiting: the requests that wait for permits, in queue order.
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

    :raises InvalidRequest: the name is invalid.
    """
    if not isinstance(group, str) or not group.strip() or not group.isprintable():
        raise InvalidRequest(f"{group!r:.80} is not the name of a group of leases. Use printable characters")
    if len(group) > MAX_GROUP_LENGTH:
        raise InvalidRequest(f"group {group[:40]!r}… is longer than {MAX_GROUP_LENGTH} characters. Use a shorter name")


def check_weight(weight: object, whose: str) -> None:
    """Check a weight.

    :param whose: what the weight is for, for the error message.
    :raises InvalidRequest: the weight is invalid.
    """
    _check_number(f"weight={weight!r}, {whose},", weight, MAX_WEIGHT)


def _check_number(what: str, number: Any, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise InvalidRequest(f"{what} is invalid. Give a whole number from 1 to {most:,}")
