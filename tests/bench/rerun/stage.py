"""A real Airflow on PostgreSQL, a ZooKeeper, and Hive's own lock manager on it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hivelock.locks import LockObject
from tests.bench.rerun.ways import MORE_SLOTS, POOL, SLOTS, WAYS
from tests.bench.site import Site
from tests.support.servers.lock_manager import HiveLockManagers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.lock_manager import HiveLocks


@dataclass(frozen=True)
class HiveClient:
    """Somebody at Hive's prompt: one try, as a query that does not want to wait."""

    locks: HiveLocks

    def select(self, partition: str) -> bool:
        """Read a partition; whether that was let through."""
        granted = self.locks.lock(_hives(partition, "SHARED"), f"select * from {partition}").granted
        if granted:
            self.locks.unlock()
        return granted

    def write(self, partition: str) -> None:
        """Begin to write a partition, that is to hold it."""
        assert self.locks.lock(_hives(partition, "EXCLUSIVE"), f"insert into {partition}").granted

    def finish(self) -> None:
        """Have written it."""
        self.locks.unlock()


@dataclass
class Stage(Site):
    """All that a rerun is played on.

    :param job_s: how long a day's job takes.
    :param reader: who SELECTs.
    :param writer: who holds a day.
    """

    job_s: float
    reader: HiveClient
    writer: HiveClient


@contextmanager
def staged(workdir: Path, job_s: float) -> Iterator[Stage]:
    """Start all of it; stop all of it."""
    with (
        Site.up(
            workdir,
            Path(__file__).parent / "dags",
            slots=SLOTS + MORE_SLOTS,
            pools=[{"name": POOL, "slots": SLOTS}],
            unpaused=[f"{way.name}_daily" for way in WAYS],
            env={"BENCH_JOB_S": str(job_s)},
        ) as site,
        HiveLockManagers(workdir, zookeeper=site.zookeeper) as hives,
    ):
        reader, writer = (HiveClient(hives.session(who)) for who in ("reader", "writer"))
        yield Stage(**vars(site), job_s=job_s, reader=reader, writer=writer)


def _hives(partition: str, mode: str) -> list[tuple[tuple[str, ...], str]]:
    """The locks of a Hive query: the partition in that mode, and its parents SHARED."""
    path = LockObject.parse(partition).path
    return [*((path[:depth], "SHARED") for depth in range(1, len(path))), (path, mode)]
