"""The ways to cap a rerun's work that are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 4
"""How many days may be worked on at a time."""


@dataclass(frozen=True)
class Way:
    """One way, which has a DAG, a table and, if it caps by one, a pool of its name.

    :param title: what the report calls it.
    :param task: arguments of the day's task.
    :param dag: arguments of the DAG.
    :param include_deferred: of its pool; None: it has none.
    """

    name: str
    title: str
    task: Mapping[str, Any] = field(default_factory=dict)
    dag: Mapping[str, Any] = field(default_factory=dict)
    include_deferred: bool | None = None

    @property
    def table(self) -> str:
        return f"dw.{self.name}"


WAYS = (
    Way("pool", f"a pool of {MOST} slots, as it is by default", {"pool": "pool"}, include_deferred=False),
    Way(
        "pool_deferred", f"a pool of {MOST} slots, `include_deferred`", {"pool": "pool_deferred"}, include_deferred=True
    ),
    Way("tis_per_dag", f"`max_active_tis_per_dag={MOST}`", {"max_active_tis_per_dag": MOST}),
    Way("runs", f"`max_active_runs={MOST}`", dag={"max_active_runs": MOST}),
    Way("uncapped", "no cap"),
)
