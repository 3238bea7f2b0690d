"""Takes Hive's locks for each statement of a PySpark session. The session needs no Airflow.

Hive's own clients take locks for each statement. After :func:`enable_hive_locks` a Spark session does the same: each
statement takes its locks before it runs, and releases them when it has ended.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from airflow_hivelock.locks import plan as planning
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.model.object import CATALOG
from airflow_hivelock.locks.plan.text import Plan
from airflow_hivelock.spark.connect import ConnectLocks, is_connect
from airflow_hivelock.spark.driver_work import KEEPER_SETTING
from airflow_hivelock.spark.guard import SAFE_INSERT, URL, task_lease
from airflow_hivelock.spark.leases import DriverLeases, Outside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.spark.driver_side import DriverSide

    Side: TypeAlias = DriverSide | ConnectLocks
    """The place where the statements of a session are intercepted: its driver's JVM, or its client of Spark Connect."""

URL_SETTING = "spark.hivelock.url"


class HiveLocks:
    """The locks of all sessions of one Spark driver. In Spark Connect, the locks of one session.

    :func:`enable_hive_locks` returns it.
    """

    def __init__(self, side: Side, leases: DriverLeases) -> None:
        self._side = side
        self._leases = leases

    @contextmanager
    def lease(self, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> Iterator[None]:
        """Hold one lease for all statements in the body, in this thread.

        A statement that the lease covers takes no locks of its own. If a statement needs more, ``outside`` decides
        whether it asks for the rest or fails.

        :param reads: names of data that the body reads, as in a task's ``reads``:
            ``dw.flights/dt=2013-01-01..2013-01-07``.
        :param writes: names of data that the body changes.
        """
        shared, exclusive = planning.plan(reads, writes, self._side.tables)
        with self._leases.locked(Plan(shared, exclusive, {}), f"lease of {self._side.name}", named=True):
            yield

    def explain(self, statement: Any) -> str:
        """The locks that *statement* would take, as Hive's EXPLAIN LOCKS prints them. The statement is not executed.

        :param statement: SQL, or a DataFrame.
        """
        found = self._side.plan_of(statement)
        return planning.explain(found.reads, found.writes)

    def disable(self) -> None:
        """Stop locking, and release everything that the driver holds."""
        self._side.stop()
        self._leases.close()


def enable_hive_locks(
    spark: Any,
    url: str | None = None,
    *,
    outside: Outside = "ask",
    timeout_s: float | None = 3600.0,
    lease_s: float = 3600.0,
    unknown: Literal["refuse", "lock"] = "refuse",
    catalogs: Sequence[str] = (CATALOG,),
    others: Sequence[str] = (),
    keeper: str | None = None,
    progress: bool | None = None,
) -> HiveLocks:
    """Make each statement of this driver take the locks that Hive would take, and release them when it has ended.

    :param spark: the SparkSession. All sessions of its driver take locks. In Spark Connect only this session does.
    :param url: the lock store, in the form of :func:`~airflow_hivelock.locks.connect`. Default: the setting
        ``spark.hivelock.url``, or the environment variable ``AIRFLOW_HIVELOCK_URL``.
    :param outside: what a statement does if it runs under a lease and needs more than the lease holds: ``ask`` for the
        rest, or ``fail``. The lease is that of an Airflow task or of :meth:`HiveLocks.lease`.
    :param timeout_s: how long a statement waits for its locks, in seconds. None: without a limit.
    :param lease_s: how long a lease is trusted without renewal, in seconds. A thread renews it while the statement runs.
    :param unknown: ``refuse`` an unknown command, or ``lock`` everything that it names, EXCLUSIVE. Not in Spark Connect.
    :param catalogs: Spark's catalogs with the tables of this Hive metastore. Not in Spark Connect.
    :param others: the catalogs with tables that need no lock here. Not in Spark Connect.
    :param keeper: the installation id of an Airflow. Its keeper releases the locks of this driver after the driver's process
        has ended. On YARN and Kubernetes, add the Airflow connection to the cluster: ``etl-prod/spark_default``. The keeper
        then asks the cluster. Default: the setting ``spark.hivelock.keeper``. Without a keeper, a user releases the locks.
    :param progress: whether a statement shows a line while it waits. Default: in notebooks and terminals.
    :raises InvalidRequest: no lock store is named, or an option is wrong.
    :raises StoreUnavailable: the lock store does not answer.
    :raises Unsupported: the lock store only lists locks.
    """
    if unknown not in ("refuse", "lock"):
        raise InvalidRequest(f"unknown={unknown!r}: use 'refuse' or 'lock'")
    side: Side
    if is_connect(spark):
        if unknown != "refuse" or [*catalogs] != [CATALOG] or others:
            raise InvalidRequest(
                "unknown, catalogs and others have no effect in Spark Connect, because the client has no plan; remove them, "
                "and run refused statements under a lease that names their data: HiveLocks.lease(writes=[…])"
            )
        side = ConnectLocks(spark)
    else:
        from airflow_hivelock.spark.driver_side import DriverSide  # pyspark-client has no py4j

        side = DriverSide(spark, catalogs=catalogs, others=others, lenient=unknown == "lock")
    if keeper is None and not is_connect(spark):
        keeper = spark.conf.get(KEEPER_SETTING, None)
    work = side.work(keeper) if keeper else None
    manager = _connected(spark, url)
    if not side.has_setting(SAFE_INSERT):
        spark.conf.set(SAFE_INSERT, "false")
    leases = DriverLeases(
        manager,
        side.driver,
        work=work,
        task_lease=task_lease(spark),
        outside=outside,
        lease_s=lease_s,
        timeout_s=timeout_s,
        progress=progress,
        stop=lambda _: side.cancel(),
        ended=side.ended,
    )
    side.start(leases)
    return HiveLocks(side, leases)


def _connected(spark: Any, url: str | None) -> LockManager:
    """The lock manager of the store at *url*, or of the store in the session's settings."""
    url = url or spark.conf.get(URL_SETTING, None) or os.environ.get(URL)
    if not url:
        raise InvalidRequest(
            f"no lock store is named; pass its url, or set {URL_SETTING} or {URL}, as in zookeeper://zk1:2181/hive"
        )
    manager = connect(url)
    if not manager.capabilities.acquires:
        manager.close()
        raise Unsupported(
            "this lock store only lists locks; use the lock store of Hive itself, as in zookeeper://zk1:2181/hive"
        )
    return manager
