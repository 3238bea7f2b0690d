"""A real Airflow on PostgreSQL, the ZooKeeper with its locks, and the notes of its jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_hivelock.locks import LockManager, connect
from tests.support.airflow_server import AirflowServer, locks_in
from tests.support.servers import ZooKeeperServer
from tests.support.spans import noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

T = TypeVar("T")

STUCK_S = 3600.0
READY_S = 180.0


@dataclass
class Site:
    """All that is measured on.

    :param scratch: where jobs note what they do, and write their partitions.
    """

    airflow: AirflowServer
    locks: LockManager
    zookeeper: ZooKeeperServer
    scratch: Path

    @classmethod
    @contextmanager
    def up(
        cls,
        workdir: Path,
        dags: Path,
        *,
        slots: int,
        pools: Sequence[Mapping[str, Any]] = (),
        unpaused: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Self]:
        """Start all of it; stop all of it. The DAGs find the scratch folder in ``BENCH_SCRATCH``."""
        scratch = workdir / "scratch"
        scratch.mkdir()
        with (
            ZooKeeperServer(workdir, heap_mb=512) as zookeeper,
            connect(zookeeper.url) as locks,
            AirflowServer(
                workdir / "airflow",
                dags,
                connections={"hivelock_default": locks_in(zookeeper.url, "bench")},
                config={("triggerer", "capacity"): "2000", ("core", "parallelism"): str(slots)},
                env={"BENCH_SCRATCH": str(scratch), **(env or {})},
            ) as airflow,
        ):
            for pool in pools:
                airflow.api.call("POST", "pools", json=pool)
            for dag_id in unpaused:
                airflow.unpause(dag_id, READY_S)
            yield cls(airflow, locks, zookeeper, scratch)

    def notes(self, name: str) -> list[str]:
        return noted(self.scratch / f"{name}.notes")

    def wait(self, condition: Callable[[], T], what: str) -> T:
        return self.airflow.wait(condition, STUCK_S, what)

    def trigger(self, dag_id: str, runs: Mapping[str, datetime]) -> None:
        """Trigger *runs*, each by its id and with its logical date."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda run_id: self.airflow.trigger(dag_id, runs[run_id], run_id=run_id), runs))

    def trigger_at_once(self, dag_id: str, runs: Mapping[str, datetime]) -> None:
        """The same, while the DAG is paused: then all start together."""
        self.airflow.wait(lambda: self.airflow.api.knows_dag(dag_id), READY_S, f"DAG {dag_id} to be parsed")
        self.airflow.api.pause(dag_id, True)
        self.trigger(dag_id, runs)
        self.airflow.api.pause(dag_id, False)
