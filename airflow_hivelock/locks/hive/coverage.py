"""Which lock manager protects what: whether Hive sees the locks that are taken here, and which tables it does not lock.

A lock holds apart those who look at it. Hive looks in ZooKeeper (``DummyTxnManager`` with its ``hive.lock.manager``: the
default of Apache's own configuration), or in its metastore (``DbTxnManager``: HDP 3, CDP, Dataproc), or nowhere
(``hive.support.concurrency=false``: the default of the code). Locks elsewhere hold Airflow's tasks apart, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_hivelock.locks.backend import Capabilities
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockObject

CONCURRENCY = "hive.support.concurrency"
TXN_MANAGER = "hive.txn.manager"
LOCK_MANAGER = "hive.lock.manager"
EXTERNAL = "hive.txn.ext.locking.enabled"
READS = "hive.txn.read.locks"
REAPERS = ("hive.compactor.initiator.on", "metastore.compactor.initiator.on", "metastore.housekeeping.threads.on")
JOBS_ONLY = "hive.lock.mapred.only.operation"
SETTINGS = (CONCURRENCY, TXN_MANAGER, LOCK_MANAGER, JOBS_ONLY, EXTERNAL, READS, *REAPERS)


class Hive(Protocol):
    """A Hive that tells its settings: the metastore's and HiveServer2's backends, a metastore's catalog, a hive-site.xml.

    HiveServer2's decide where its queries lock; a metastore's may be others.
    """

    @property
    def settings_of(self) -> str:
        """Whose settings they are."""
        ...

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """None for those that are not set, or not told."""
        ...


@dataclass(frozen=True)
class Finding:
    """One thing to know about what is protected.

    :param warning: it leaves somebody unprotected.
    """

    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'WARNING' if self.warning else 'ok'}: {self.text}"


def check(
    manager: LockManager, hive: Hive | None = None, tables: Iterable[LockObject] = (), catalog: Catalog | None = None
) -> list[Finding]:
    """What the locks of *manager* protect, as far as it can be found out.

    :param hive: whom to ask for Hive's settings; where none is given, the lock store, if it is part of Hive.
    :param tables: with a *catalog*, those of them that Hive locks otherwise than the rest are told.
    :raises StoreUnavailable: who was asked did not answer.
    """
    asked: Hive | Any = hive or (manager.backend if hasattr(manager.backend, "settings") else None)
    findings = list(_of_settings(manager.capabilities, asked)) if asked else [_untold(manager)]
    for table in tables if catalog else ():
        findings += _of_table(table, manager.capabilities, catalog)
    return findings


def _untold(manager: LockManager) -> Finding:
    if not manager.capabilities.seen_by_hive:
        return Finding("Hive sees nothing of this lock store: it holds apart only those who lock here", warning=True)
    return Finding(
        "Hive sees these locks where it locks in ZooKeeper, too; nobody was asked whether it does. "
        "Name its metastore or a HiveServer2 to find out: on CDP, HDP 3 and Dataproc it does not",
        warning=True,
    )


def _of_settings(promises: Capabilities, hive: Hive) -> Iterator[Finding]:
    settings = hive.settings(SETTINGS)
    txn_manager, lock_manager = (
        (settings[name] or "unknown").rsplit(".", 1)[-1] for name in (TXN_MANAGER, LOCK_MANAGER)
    )
    if settings[CONCURRENCY] == "false":
        yield Finding(
            f"Hive takes no locks at all, and honours none: {CONCURRENCY} is false in {hive.settings_of}", warning=True
        )
        return
    in_metastore = txn_manager == "DbTxnManager"
    store = "its metastore" if in_metastore else "ZooKeeper" if lock_manager == "ZooKeeperHiveLockManager" else None
    where = f"{txn_manager}, {lock_manager}" if txn_manager == "DummyTxnManager" else txn_manager
    where = f"{where} in {hive.settings_of}"
    if store is None:
        yield Finding(
            f"where Hive locks is not known ({where}); locks taken here may hold nothing of Hive's apart", True
        )
    elif not promises.acquires:
        yield Finding(f"Hive locks in {store} ({where}); these are the locks that are shown")
    elif promises.seen_by_hive and promises.parents is not in_metastore:
        yield Finding(f"Hive locks in {store} ({where}), as this lock store does: each honours the other's locks")
    else:
        url = "metastore://" if in_metastore else "zookeeper://"
        yield Finding(
            f"Hive locks in {store} ({where}), and sees nothing of this lock store: it holds apart only those who lock "
            f"here. Use {url}",
            warning=True,
        )
    if settings.get(JOBS_ONLY) == "true":
        yield Finding(
            f"only those statements of Hive's lock that run a job: {JOBS_ONLY} is true in {hive.settings_of}. A DROP, an ALTER "
            "or a LOAD of Hive's neither waits for locks nor takes any",
            warning=True,
        )
    if in_metastore:
        yield from _of_db_txn_manager(promises, settings)


def _of_db_txn_manager(promises: Capabilities, settings: Mapping[str, str | None]) -> Iterator[Finding]:
    if settings[EXTERNAL] != "true":
        yield Finding(f"Hive 3 and later do not lock external tables, unless {EXTERNAL} is true", warning=True)
    if settings[READS] == "false":
        yield Finding(f"Hive's readers take no locks: {READS} is false", warning=True)
    told = [settings[name] for name in REAPERS if settings[name] is not None]
    if promises.expires and told and "true" not in told:
        yield Finding(
            f"this metastore does not expire the locks of the dead ({REAPERS[0]} is false); unless another one over the "
            "same database does, they stay until they are force-released",
            warning=True,
        )


def _of_table(table: LockObject, promises: Capabilities, catalog: Catalog | None) -> Iterator[Finding]:
    known = catalog and catalog.table(table)
    if not known:
        yield Finding(f"{table} is not known to the metastore: nothing can be said of it", warning=True)
        return
    in_metastore = promises.seen_by_hive and not promises.parents
    if known.iceberg and in_metastore:
        yield Finding(
            f"{table} is an Iceberg table: its commits take an EXCLUSIVE lock in the metastore, and wait for ever under "
            "a lease of their own task; set iceberg.engine.hive.lock-enabled=false, or lock elsewhere",
            warning=True,
        )
    elif known.transactional and not in_metastore:
        yield Finding(f"{table} is transactional: Hive locks it in its metastore only", warning=True)
    elif known.table_type == "EXTERNAL_TABLE" and in_metastore:
        yield Finding(f"{table} is external: Hive 3 and later take no locks on it, and honour none", warning=True)
    else:
        yield Finding(f"{table} is locked by Hive as its configuration says")
