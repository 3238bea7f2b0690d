"""Group limits in the lock store: the interface of such a backend, and the lock manager's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.invalid import MAX_REASON_LENGTH, one_line
from airflow_hivelock.locks.model import Group
from airflow_hivelock.locks.model.group import check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backend import Backend
    from airflow_hivelock.locks.model import GroupUse


@runtime_checkable
class KeepsGroups(Protocol):
    """A backend that stores the settings of groups."""

    def groups(self) -> Sequence[GroupUse]:
        """The groups that have settings or requests, sorted by name."""
        ...

    def put_group(self, name: str, group: Group | None, *, reason: str, user: str) -> bool:
        """Store the settings of a group, and write an entry to the audit trail, in one step.

        Each later grant counts by these settings. The group's waiters are notified. No holder loses its lease.

        :param group: the settings; None deletes them.
        :return: False if there were none to delete.
        """
        ...


class ManagesGroups:
    """The calls of :class:`~.manager.LockManager` on groups."""

    backend: Backend

    def groups(self) -> Sequence[GroupUse]:
        """The groups that have settings or requests, sorted by name, each with its settings, holders and waiters."""
        return self.backend.groups() if isinstance(self.backend, KeepsGroups) else ()

    def set_group(
        self, name: str, leases: int, *, weight: int = 1, comment: str = "", user: str, reason: str = ""
    ) -> Group:
        """Store how many leases a group may hold at a time, and write an entry to the audit trail.

        This limit replaces the requests' own limits (``max_leases``). Waiters notice a larger limit at once. A smaller
        limit takes no lease from a holder.

        :param weight: how many leases a request counts for if it sets no weight.
        :param comment: a text for people.
        :raises InvalidRequest: a value is invalid; nothing was changed.
        :raises Unsupported: the store counts no leases.
        """
        group = Group(name, leases, weight, comment)
        self._keeper(name).put_group(name, group, reason=_reason(name, reason), user=_user(name, user))
        return group

    def drop_group(self, name: str, *, user: str, reason: str = "") -> bool:
        """Delete the settings of a group, and write an entry to the audit trail. Each request has its own limit again.

        :return: whether there were settings.
        :raises InvalidRequest: as :meth:`set_group`.
        :raises Unsupported: the store counts no leases.
        """
        check_name(name)
        return self._keeper(name).put_group(name, None, reason=_reason(name, reason), user=_user(name, user))

    def _keeper(self, name: str) -> KeepsGroups:
        if isinstance(self.backend, KeepsGroups):
            return self.backend
        raise Unsupported(
            f"group {name!r}: this lock store does not count leases. Keep locks in ZooKeeper or in a database"
        )


_OWNER = "group "


def entry(name: str, before: Group | None, after: Group | None, reason: str) -> tuple[str, str]:
    """The owner and the reason of the audit entry for a change of a group's settings."""
    change = f"{after or 'no limit in the store'}, before: {before or 'no limit in the store'}"
    return f"{_OWNER}{name}", f"{change}. {reason}" if reason else change


def group_of(owner: str) -> str:
    """The group that an audit entry of this *owner* is about. Empty if the entry is about a lease."""
    return owner.removeprefix(_OWNER) if owner.startswith(_OWNER) else ""


def _user(name: str, user: str) -> str:
    if not (line := one_line(user)):
        raise InvalidRequest(f"group {name!r}: the change needs a user (user), because the audit trail keeps the user")
    return line


def _reason(name: str, reason: str) -> str:
    if not (line := one_line(reason)) and reason:
        raise InvalidRequest(
            f"group {name!r}: the reason (reason) must have up to {MAX_REASON_LENGTH:,} printable characters"
        )
    return line
