"""The hosts with recorded work, and the declaration that a host is gone.

If a host is gone for good, only a user can know that its work has ended. The user declares that once for all work on
the host. The declaration is written into the record of each work, so every process that checks a lease finds it. It
ends with the lease. It does not cover later work on a host of the same name.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import CannotTell, InvalidRequest
from airflow_hivelock.locks.invalid import MAX_REASON_LENGTH, printable
from airflow_hivelock.locks.manager import audit_texts
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import ForcedRelease, Lease, Work


_GONE = " is gone, and with it work "


@dataclass(frozen=True)
class HostWork:
    """The recorded work of a task's processes on a host."""

    lease: Lease
    work: Work
    processes: Processes


def recorded(leases: Iterable[Lease]) -> list[HostWork]:
    """Return the work of *leases* that only its host can check, sorted by host. Jobs on clusters are excluded."""
    found = [
        HostWork(lease, work, processes)
        for lease in leases
        for work in lease.works
        if (processes := _processes(work)) is not None
    ]
    return sorted(found, key=lambda each: (each.processes.host, each.lease.owner, each.work.name))


def on_host(host: str, leases: Iterable[Lease]) -> list[HostWork]:
    """Return the work of :func:`recorded` on *host*, except work that was already declared gone.

    :raises InvalidRequest: this process runs on *host*, no lease records work there, or all of it was declared gone.
    """
    every = recorded(leases)
    there = [each for each in every if each.processes.host == host]
    found = [each for each in there if not each.processes.gone]
    if host == socket.gethostname():
        raise InvalidRequest(
            f"{host} is this host, so it is not gone. hivelock itself checks whether the work still runs here"
        )
    if there and not found:
        raise InvalidRequest(
            f"{host!r} is already declared gone, by {there[0].processes.gone}. A lease that stays has other work, or its task is "
            "not over: open it on the page"
        )
    if not found:
        hosts = sorted({each.processes.host for each in every if not each.processes.gone})
        raise InvalidRequest(
            f"no lease records work on {host!r}. Hosts with recorded work: {', '.join(hosts) or 'none'}"
        )
    return found


def declare_gone(manager: LockManager, works: Iterable[HostWork], *, reason: str, user: str) -> list[HostWork]:
    """Declare the hosts of *works* gone, so that their work counts as ended. The audit trail has each declaration.

    Do this only if the host is off, or can never reach its network again. Otherwise work that still runs there
    writes at the same time as the next holder.

    :param works: the work as it was read. Work that has changed since then is skipped.
    :return: the work that is now declared gone. The other work has ended or changed.
    :raises InvalidRequest: the reason or the user is missing or invalid.
    :raises Unsupported: the store does not record work.
    """
    reason, user = audit_texts("host declared gone", reason, user)
    at = manager.now()
    return [
        each for each in works if _declare(manager, each, reason, user, f"{user} at {at:%Y-%m-%d %H:%M:%S}Z: {reason}")
    ]


def declares_gone(entry: ForcedRelease) -> bool:
    """Whether *entry* of the audit trail declares a host gone. Such an entry frees no lease."""
    return work_gone(entry.reason) != ""


def work_gone(reason: str) -> str:
    """The name of the work in the *reason* of an audit entry that declares a host gone. Empty if it is another entry."""
    return reason.partition(_GONE)[2].partition(": ")[0] if reason.startswith("host ") else ""


def _declare(manager: LockManager, each: HostWork, reason: str, user: str, declaration: str) -> bool:
    ended = each.processes.declared_gone(declaration)
    name = printable(each.work.name)  # any client can write a record, and the audit trail keeps no other text
    why = f"host {ended.host}{_GONE}{name}: {reason}"[:MAX_REASON_LENGTH]
    return manager.force_record(each.lease.id, each.work, applications.encode(ended), reason=why, user=user)


def _processes(work: Work) -> Processes | None:
    try:
        application = applications.of(work)
    except CannotTell:
        return None  # no record yet, or this version cannot read it
    return application if isinstance(application, Processes) and application.exist else None
