"""The command ``host-gone``. It needs Airflow, because it reads the work that Airflow's tasks record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.statements.statement import Result
from airflow_hivelock.work import hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.work.hosts import HostWork

_COLUMNS = ("lease_id", "user", "work", "process", "pod")


def host_gone(names: Sequence[str], manager: LockManager, *, declare: bool, reason: str, user: str) -> Iterator[Result]:
    """List the hosts with recorded work. If *names* has a host, list the work there, and *declare* that host gone."""
    if len(names) > 1 or (declare and not names):
        raise InvalidRequest(f"host-gone {' '.join(names) or '--yes'}: name one host at a time")
    if not names:
        rows = [
            (each.processes.host, each.processes.queue, *_row(each), each.processes.gone)
            for each in hosts.recorded(manager.leases())
        ]
        yield Result(("host", "queue", *_COLUMNS, "gone"), tuple(rows))
        return
    (host,) = names
    works = hosts.on_host(host, manager.leases())
    if declare:
        works = hosts.declare_gone(manager, works, reason=reason, user=user)
    yield Result(_COLUMNS, tuple(map(_row, works)))
    if not declare:
        raise InvalidRequest(
            f"nothing is declared yet. If {host} is off, or can never reach its network again, repeat the command with --yes "
            "and a reason (reason). Otherwise its work would continue to write together with the next holder"
        )


def _row(each: HostWork) -> tuple[str | int, ...]:
    return each.lease.id, each.lease.owner, each.work.name, each.processes.pid, str(each.processes.pod or "")
