"""Spark jobs of two DAGs of a real Airflow: on one partition they run one after the other, with every lock store.

Jobs on two partitions run at the same time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockManager, connect
from tests.support.airflow_server import AirflowServer, Run, locks_in
from tests.support.servers import Metastore
from tests.support.spans import noted
from tests.system.race.halfway import ROWS
from tests.system.race.late import make, rows
from tests.system.race.spark import PYTHON, ResidentSpark, environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.servers import PostgresServer, ZooKeeperServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

WAIT_S = 900
NAMES = ("nightly", "backfill")
STORES = ("zookeeper", "postgresql", "metastore")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two_dags")


@pytest.fixture(scope="module")
def metastore(workdir: Path) -> Iterator[Metastore]:
    with Metastore(workdir, transactional=True) as metastore:
        yield metastore


@pytest.fixture(scope="module")
def spark(workdir: Path, metastore: Metastore) -> Iterator[ResidentSpark]:
    """The driver of the test itself, which creates the tables and reads them at the end."""
    with ResidentSpark(workdir / "spark", metastore) as spark:
        yield spark


@pytest.fixture(scope="module")
def urls(workdir: Path, zookeeper: ZooKeeperServer, postgres: PostgresServer, metastore: Metastore) -> dict[str, str]:
    """The URLs of the lock stores, by the id of Airflow's connection."""
    return {
        "zookeeper": zookeeper.url,
        "postgresql": postgres.url,
        "metastore": f"metastore://127.0.0.1:{metastore.port}",
        **{f"apart_{name}": f"sqlite:///{workdir}/{name}.db" for name in NAMES},
    }


@pytest.fixture(scope="module")
def managers(urls: Mapping[str, str]) -> Iterator[dict[str, LockManager]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(connect(url)) for name, url in urls.items()}


@pytest.fixture(scope="module")
def af(workdir: Path, metastore: Metastore, urls: Mapping[str, str]) -> Iterator[AirflowServer]:
    spark = {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}
    with AirflowServer(
        workdir / "airflow",
        Path(__file__).parent / "dags",
        connections={"spark_default": spark, **{name: locks_in(url) for name, url in urls.items()}},
        variables={"notes": str(workdir)},
        env={
            **environment(metastore),
            "PATH": os.pathsep.join([str(PYTHON.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
        },
    ) as server:
        yield server


class Race:
    """A run of each of two DAGs, which are triggered together.

    :param store: both overwrite the table ``race.<store>``. The names of their DAGs end with it.
    :param managers: the managers of their locks: a shared one, or one for each.
    """

    def __init__(self, af: AirflowServer, workdir: Path, store: str, managers: Sequence[LockManager]) -> None:
        self.af, self.managers = af, managers
        self.table = f"race.{store}"
        self._notes = workdir / store
        dags = [f"{name}_{store}" for name in NAMES]
        for dag_id in dags:
            af.unpause(dag_id, WAIT_S)
        self._runs = [Run(af, dag_id, af.trigger(dag_id)) for dag_id in dags]

    def end(self) -> list[str]:
        """Wait until each run is halfway or waits for its locks, then open the gate. Return the final states of both."""
        self.af.wait(self._met, WAIT_S, "one run to be halfway, and the other to be halfway or to wait")
        self._notes.with_suffix(".gate").touch()
        return [run.ended() for run in self._runs]

    def noted(self) -> list[str]:
        """The notes of the jobs, in their order."""
        return noted(self._notes.with_suffix(".log"))

    def left(self) -> list[object]:
        """The remaining locks and waiters of the table."""
        return [one for manager in self.managers for one in (*manager.show(self.table), *self._waiters(manager))]

    def _met(self) -> bool:
        halfway = sum(line.endswith(" is halfway") for line in self.noted())
        waiting = sum(len(self._waiters(manager)) for manager in self.managers)
        failed = any(run.is_over() for run in self._runs)  # its job does not end before the gate opens
        return failed or (halfway > 0 and halfway + waiting == len(NAMES))

    def _waiters(self, manager: LockManager) -> Sequence[object]:
        return manager.waiters(self.table)


def begin(store: str, af: AirflowServer, spark: ResidentSpark, workdir: Path, managers: Sequence[LockManager]) -> Race:
    make(spark, f"race.{store}", "(job STRING) PARTITIONED BY (dt STRING) STORED AS PARQUET")
    return Race(af, workdir, store, managers)


@pytest.mark.parametrize("store", STORES)
def test_jobs_of_two_dags_overwrite_one_partition_one_after_the_other(
    store: str, af: AirflowServer, spark: ResidentSpark, workdir: Path, managers: Mapping[str, LockManager]
) -> None:
    race = begin(store, af, spark, workdir, [managers[store]])
    assert race.end() == ["success", "success"]
    first = race.noted()[0].partition(" ")[0]
    (second,) = set(NAMES) - {first}
    assert race.noted() == [
        f"{first} begins",
        f"{first} is halfway",
        f"{first} has ended",
        f"{second} begins",
        f"{second} has ended",
    ]
    assert Counter(rows(spark, race.table)) == {second: ROWS}
    assert race.left() == []


def test_jobs_of_two_dags_overwrite_two_partitions_at_once(
    af: AirflowServer, spark: ResidentSpark, workdir: Path, managers: Mapping[str, LockManager]
) -> None:
    """No lock separates them. They would lose each other's files without a setting of the operator."""
    race = begin("two_partitions", af, spark, workdir, [managers["zookeeper"]])
    assert race.end() == ["success", "success"]
    assert {line.partition(" ")[2] for line in race.noted()[:4]} == {"begins", "is halfway"}, "they did not overlap"
    assert Counter(rows(spark, race.table)) == dict.fromkeys(NAMES, ROWS)
    assert race.left() == []


def test_they_harm_each_other_where_each_locks_in_a_store_of_its_own(
    af: AirflowServer, spark: ResidentSpark, workdir: Path, managers: Mapping[str, LockManager]
) -> None:
    race = begin("apart", af, spark, workdir, [managers[f"apart_{name}"] for name in NAMES])
    states = race.end()
    assert [line.partition(" ")[2] for line in race.noted()[-2:]] == ["has ended"] * 2, "they did not overlap"
    assert "failed" in states or len(set(rows(spark, race.table))) == len(NAMES), "no harm in it"
    assert race.left() == []
