"""The hosts that leases record work on, and the declaration that a host is gone.

If a host is gone for good, only a user can know that its work has ended. The user declares it once for all work there.
The declaration is written into the record of each work, so every process that checks a lease finds it. It does not
concern work that starts later on a host of the same name. It ends with the lease.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import CannotTell, InvalidRequest
from airflow_hivelock.locks.manager import MAX_REASON_LENGTH, audit_texts
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import ForcedRelease, Lease, Work


@dataclass(frozen=True)
class HostWork:
    """The recorded work of a task's processes on a host."""

    lease: Lease
    work: Work
    processes: Processes


def recorded(leases: Iterable[Lease]) -> list[HostWork]:
    """Return all work of *leases* that only its host can check, by host. It excludes jobs on clusters."""
    found = [
        HostWork(lease, work, processes)
        for lease in leases
        for work in lease.works
        if (processes := _processes(work)) is not None
    ]
    return sorted(found, key=lambda each: (each.processes.host, each.lease.owner, each.work.name))


def on_host(host: str, leases: Iterable[Lease]) -> list[HostWork]:
    """Return what :func:`recorded` finds on *host*, except work that was declared gone with it.

    :raises InvalidRequest: this process runs on *host*, or no lease records work there.
    """
    every = recorded(leases)
    found = [each for each in every if each.processes.host == host and not each.processes.gone]
    if host == socket.gethostname():
        raise InvalidRequest(
            f"{host} is this host, so it is not gone. hivelock checks here by itself whether the work runs"
        )
    if not found:
        hosts = sorted({each.processes.host for each in every if not each.processes.gone})
        raise InvalidRequest(
            f"no lease records work on {host!r}. Hosts with recorded work: {', '.join(hosts) or 'none'}"
        )
    return found


def declare_gone(manager: LockManager, works: Iterable[HostWork], *, reason: str, user: str) -> list[HostWork]:
    """Declare the hosts of *works* gone, and so the work on them ended. Each declaration is in the audit trail.

    Declare it only if the host is off, or can never reach its network again. Otherwise work that still runs there
    writes at the same time as the next holder.

    :param works: as they were read. Those that have changed since then are left alone.
    :return: those that are now declared gone; the others have ended or changed.
    :raises InvalidRequest: the reason or the user is missing or invalid.
    :raises Unsupported: the store does not record work.
    """
    reason, user = audit_texts("host declared gone", reason, user)
    at = manager.now()
    return [
        each for each in works if _declare(manager, each, reason, user, f"{user} at {at:%Y-%m-%d %H:%M:%S}Z: {reason}")
    ]


def declares_gone(entry: ForcedRelease) -> bool:
    """Whether *entry* of the audit trail declares a host gone. Such an entry frees nothing."""
    return entry.reason.startswith("host ") and " is gone, and with it work " in entry.reason


def _declare(manager: LockManager, each: HostWork, reason: str, user: str, declaration: str) -> bool:
    ended = each.processes.declared_gone(declaration)
    why = f"host {ended.host} is gone, and with it work {each.work.name}: {reason}"[:MAX_REASON_LENGTH]
    return manager.force_record(each.lease.id, each.work, applications.encode(ended), reason=why, user=user)


def _processes(work: Work) -> Processes | None:
    try:
        application = applications.of(work)
    except CannotTell:
        return None  # no record yet, or one of a version that this one cannot read
    return application if isinstance(application, Processes) else None
