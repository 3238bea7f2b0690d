"""A real Airflow on PostgreSQL and the lock store. If that is ZooKeeper, also Hive's own lock manager on it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_hivelock.locks import LockManager, LockMode, LockObject, connect
from tests.bench.rerun.ways import MORE_SLOTS, POOL, SLOTS, WAYS
from tests.support.airflow_server import AirflowServer
from tests.support.servers import PostgresServer, ZooKeeperServer
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.lock_manager import HiveLocks

STORES = ("zookeeper", "postgresql")
READY_S = 180.0


class Client(Protocol):
    """Somebody at Hive's prompt."""

    def select(self, partition: str) -> bool:
        """Read a partition; whether that was let through."""
        ...

    def write(self, partition: str) -> None:
        """Begin to write a partition, that is to hold it."""
        ...

    def finish(self) -> None:
        """Have written it."""
        ...


@dataclass(frozen=True)
class Stage:
    """All that a rerun is played on.

    :param job_s: how long a day's job takes.
    :param scratch: where the jobs note what they do, a file a way, and write their partitions.
    :param reader: who SELECTs.
    :param writer: who holds a day.
    """

    airflow: AirflowServer
    locks: LockManager
    job_s: float
    scratch: Path
    reader: Client
    writer: Client


@contextmanager
def staged(workdir: Path, store: str, job_s: float) -> Iterator[Stage]:
    """Start all of it; stop all of it."""
    scratch = workdir / "scratch"
    scratch.mkdir()
    with ExitStack() as stack:
        if store == "zookeeper":
            zookeeper = stack.enter_context(ZooKeeperServer(workdir, heap_mb=512))
            hives = stack.enter_context(HiveLockManagers(workdir, zookeeper=zookeeper))
            url = zookeeper.url
            place = {"host": zookeeper.hosts, "schema": "hive_zookeeper_namespace"}
            clients: list[Client] = [HiveClient(hives.session(name)) for name in ("reader", "writer")]
        else:
            postgres = stack.enter_context(PostgresServer(workdir))
            url = postgres.url
            place = {"host": f"127.0.0.1:{postgres.port}", "login": "postgres", "schema": "postgres"}
        locks = stack.enter_context(connect(url))
        if store != "zookeeper":
            clients = [StoreClient(locks) for _ in range(2)]
        fields = {"conn_type": "hivelock", **place, "extra": {"backend": store, "installation": "bench"}}
        airflow = AirflowServer(
            workdir / "airflow",
            Path(__file__).parent / "dags",
            connections={"hivelock_default": fields},
            config={("triggerer", "capacity"): "2000", ("core", "parallelism"): str(SLOTS + MORE_SLOTS)},
            env={"RERUN_SCRATCH": str(scratch), "RERUN_JOB_S": str(job_s)},
        )
        stack.enter_context(airflow)
        airflow.api.call("POST", "pools", json={"name": POOL, "slots": SLOTS})
        for way in WAYS:
            airflow.unpause(f"{way.name}_daily", READY_S)
        yield Stage(airflow, locks, job_s, scratch, *clients)


class HiveClient:
    """Hive's own lock manager, in its JVM: one try, as a query that does not want to wait."""

    def __init__(self, locks: HiveLocks) -> None:
        self._locks = locks

    def select(self, partition: str) -> bool:
        granted = self._locks.lock(_hives(partition, "SHARED"), f"select * from {partition}").granted
        if granted:
            self._locks.unlock()
        return granted

    def write(self, partition: str) -> None:
        assert self._locks.lock(_hives(partition, "EXCLUSIVE"), f"insert into {partition}").granted

    def finish(self) -> None:
        self._locks.unlock()


class StoreClient:
    """Where Hive locks elsewhere: a look into the store instead of a SELECT, and a lease instead of an INSERT."""

    def __init__(self, locks: LockManager) -> None:
        self._locks = locks

    def select(self, partition: str) -> bool:
        wanted = LockObject.parse(partition)
        return not any(
            holder.mode is LockMode.EXCLUSIVE and (holder.object == wanted or wanted.is_below(holder.object))
            for holder in self._locks.show(partition.partition("/")[0])
        )

    def write(self, partition: str) -> None:
        self._lease = self._locks.acquire(owner="somebody else", writes=[partition], timeout_s=60)

    def finish(self) -> None:
        self._locks.release(self._lease)


def _hives(partition: str, mode: str) -> list[tuple[tuple[str, ...], str]]:
    """The locks of a Hive query: the partition in that mode, and its parents SHARED."""
    path = LockObject.parse(partition).path
    return [*((path[:depth], "SHARED") for depth in range(1, len(path))), (path, mode)]
