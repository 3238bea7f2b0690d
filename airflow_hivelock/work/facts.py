"""The leases of this process's tasks. OpenLineage's facet has them, and is made after the work.

A worker runs one task, but ``dag.test()`` runs all tasks of a DAG. So each lease is kept for its task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import Lease, Work
    from airflow_hivelock.waiting.rounds import Round

MOST_TASKS, MOST_LEASES = 100, 100
"""How many tasks of a process are remembered, and how many leases of each: the last ones."""


@dataclass(frozen=True)
class LeaseFacts:
    """A lease of a task.

    :param token: the fencing token of the task's work under the lease, or else of the grant.
    :param waited_s: how long the task waited for the lease, in seconds. None if another process or task waited.
    :param waited_for: the owners of its blockers.
    """

    lease_id: str
    token: int
    waited_s: float | None = None
    waited_for: tuple[str, ...] = ()


_facts: dict[str, dict[str, LeaseFacts]] = {}
"""The facts by task and lease id."""


def granted(lease: Lease, wait: Round) -> None:
    """Remember that a task has acquired *lease* after *wait*."""
    if owner := Owner.parse(lease.owner):
        _keep([_task(owner)], LeaseFacts(lease.id, lease.token, wait.waited_s, wait.waited_for))


def works(lease: Lease, work: Work) -> None:
    """Remember that a task works under *lease*. Another task may have acquired it."""
    owner = Owner.parse(lease.owner)
    # Under a lease of another DAG, the work has the name of its task in full.
    names = [work.name, f"{owner.dag_id}/{owner.run_id}/{work.name}"] if owner else [work.name]
    _keep(names, LeaseFacts(lease.id, work.token))


def of(owner: Owner) -> list[LeaseFacts]:
    """The leases of a task, including those of its ``hold()`` calls, the oldest first."""
    return list(_facts.get(_task(owner), {}).values())


def _task(owner: Owner) -> str:
    return f"{owner.dag_id}/{owner.run_id}/{owner.work}"


def _keep(names: Iterable[str], facts: LeaseFacts) -> None:
    for name in names:
        leases = _facts.setdefault(name, {})
        before = leases.get(facts.lease_id)
        known = before if before is not None and facts.waited_s is None else facts
        leases[facts.lease_id] = replace(known, token=max(facts.token, known.token))
        _drop_oldest(leases, MOST_LEASES)
    _drop_oldest(_facts, MOST_TASKS)


def _drop_oldest(entries: dict[str, Any], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
