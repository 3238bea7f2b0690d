"""The hosts that leases record work on, and the word that one of them is gone.

What ran on a host that nobody can ask any more is nobody's to judge but a person's, who says so once for all of it. The
word is written into each work that it is about, in place of what that has recorded: so whoever judges a lease finds it
there, it is about nothing that starts later on a host of that name, and it ends with the lease.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import CannotTell, InvalidRequest
from airflow_hivelock.locks.manager import MAX_SAID_LENGTH, said
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import ForcedRelease, Lease, Work


@dataclass(frozen=True)
class HostWork:
    """What a lease records of a task's processes on a host."""

    lease: Lease
    work: Work
    processes: Processes


def recorded(leases: Iterable[Lease]) -> list[HostWork]:
    """All work of *leases* whose end its host has to tell, by host; not that of jobs on clusters."""
    found = [
        HostWork(lease, work, processes)
        for lease in leases
        for work in lease.works
        if (processes := _processes(work)) is not None
    ]
    return sorted(found, key=lambda each: (each.processes.host, each.lease.owner, each.work.name))


def on_host(host: str, leases: Iterable[Lease]) -> list[HostWork]:
    """What :func:`recorded` finds on *host*, and nobody has said to be gone with it.

    :raises InvalidRequest: this process runs there, or nothing is recorded there.
    """
    every = recorded(leases)
    found = [each for each in every if each.processes.host == host and not each.processes.gone]
    if host == socket.gethostname():
        raise InvalidRequest(f"{host} is not gone: it is this host, and what runs here is asked for, not declared")
    if not found:
        hosts = sorted({each.processes.host for each in every if not each.processes.gone})
        raise InvalidRequest(f"no lease records work on {host!r}; they do on: {', '.join(hosts) or 'no host'}")
    return found


def declare_gone(manager: LockManager, works: Iterable[HostWork], *, reason: str, user: str) -> list[HostWork]:
    """Say of *works*, as they were looked at, that their hosts are gone and they have ended; each goes to the audit trail.

    Only who knows that the host is off, or will never come back to its network, may say so: what still runs there writes
    on beside the next holder.

    :return: those of them of which it is said now; the others have ended or changed since.
    :raises InvalidRequest: without a reason or a user, or for one that cannot be kept.
    :raises Unsupported: the store does not record what runs under a lease.
    """
    reason, user = said("host declared gone", reason, user)
    at = manager.now()
    return [
        each for each in works if _declare(manager, each, reason, user, f"{user} at {at:%Y-%m-%d %H:%M:%S}Z: {reason}")
    ]


def declares_gone(entry: ForcedRelease) -> bool:
    """Whether that entry of the audit trail frees nothing, but says that a host is gone."""
    return entry.reason.startswith("host ") and " is gone, and with it work " in entry.reason


def _declare(manager: LockManager, each: HostWork, reason: str, user: str, word: str) -> bool:
    ended = each.processes.declared_gone(word)
    why = f"host {ended.host} is gone, and with it work {each.work.name}: {reason}"[:MAX_SAID_LENGTH]
    return manager.force_record(each.lease.id, each.work, applications.encode(ended), reason=why, user=user)


def _processes(work: Work) -> Processes | None:
    try:
        application = applications.of(work)
    except CannotTell:
        return None  # nothing yet, or of a version that this one does not know
    return application if isinstance(application, Processes) else None
