"""Which lock manager protects what: whether Hive sees the locks that are taken here, and which tables it does not lock.

A lock holds apart those who look at it. Hive looks in ZooKeeper (``DummyTxnManager`` with its ``hive.lock.manager``: the
default of Apache's own configuration), or in its metastore (``DbTxnManager``: HDP 3, CDP, Dataproc), or nowhere
(``hive.support.concurrency=false``: the default of the code). Locks elsewhere hold Airflow's tasks apart, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_hivelock.locks.backend import HasNamespaces, Warns
from airflow_hivelock.locks.hive.catalog import ICEBERG
from airflow_hivelock.locks.hive.commits import WHAT_TO_SET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_hivelock.locks.backend import Capabilities, NamespaceUse
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockObject

CONCURRENCY = "hive.support.concurrency"
TXN_MANAGER = "hive.txn.manager"
LOCK_MANAGER = "hive.lock.manager"
EXTERNAL = "hive.txn.ext.locking.enabled"
READS = "hive.txn.read.locks"
PLAIN_READS = "hive.txn.nonacid.read.locks"
LOCKLESS = "hive.acid.lockless.reads.enabled"
STRICT = "hive.txn.strict.locking.mode"
REAPERS = ("hive.compactor.initiator.on", "metastore.compactor.initiator.on", "metastore.housekeeping.threads.on")
JOBS_ONLY = "hive.lock.mapred.only.operation"
NAMESPACE = "hive.zookeeper.namespace"
SETTINGS = (
    CONCURRENCY,
    TXN_MANAGER,
    LOCK_MANAGER,
    NAMESPACE,
    JOBS_ONLY,
    EXTERNAL,
    READS,
    PLAIN_READS,
    LOCKLESS,
    STRICT,
    *REAPERS,
)

TRUTHS = {CONCURRENCY, JOBS_ONLY, EXTERNAL, READS, PLAIN_READS, LOCKLESS, STRICT, *REAPERS}
"""Those that Hive reads as true or false, however they are written."""


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


@runtime_checkable
class TellsVersion(Protocol):
    """A metastore, as lock store or as catalog."""

    def version(self) -> str:
        """Its Hive's, as :meth:`.thrift.Metastore.version` has it."""
        ...


@dataclass(frozen=True)
class Finding:
    """One thing to know about what is protected.

    :param warning: a limit to know of.
    :param error: data is unprotected, or its protection cannot be checked. The text names what to change, and ``hivelock
        check`` fails.
    """

    text: str
    warning: bool = False
    error: bool = False

    @property
    def kind(self) -> str:
        """``error``, ``warning`` or ``ok``."""
        return "error" if self.error else "warning" if self.warning else "ok"

    def __str__(self) -> str:
        return f"{self.kind.upper() if self.warning or self.error else self.kind}: {self.text}"


def unprotected(text: str) -> Finding:
    """What leaves data unprotected."""
    return Finding(text, warning=True, error=True)


def check(
    manager: LockManager,
    hive: Hive | None = None,
    tables: Iterable[LockObject] = (),
    catalog: Catalog | None = None,
    *,
    namespaces: bool = True,
) -> list[Finding]:
    """What the locks of *manager* protect, as far as it can be found out.

    :param hive: whom to ask for Hive's settings; where none is given, the lock store, if it is part of Hive.
    :param tables: with a *catalog*, those of them that Hive locks otherwise than the rest are told.
    :param namespaces: whether to look for the namespaces that a Hive uses. A metastore's settings do not tell: the HiveServer2
        that locks may have others.
    :raises StoreUnavailable: who was asked did not answer.
    """
    asked: Hive | Any = hive or (manager.backend if hasattr(manager.backend, "settings") else None)
    metastore = next((each for each in (manager.backend, asked, catalog) if isinstance(each, TellsVersion)), None)
    version = metastore.version() if metastore else ""
    namespace = getattr(manager.backend, "namespace", None)
    settings = _settings(asked) if asked else {}
    findings: list[Finding] = []
    if asked:
        findings = list(_of_settings(manager.capabilities, asked.settings_of, settings, version, namespace))
    told = asked and not isinstance(asked, TellsVersion)
    if namespaces and not told and not findings_fail(findings) and isinstance(manager.backend, HasNamespaces):
        findings += _of_namespaces(*manager.backend.namespaces())
    if not findings:
        findings = [_untold(manager)]
    for table in tables if catalog else ():
        findings += _of_table(table, manager.capabilities, catalog, settings, version)
    if version:
        findings += _of_version(version, getattr(manager.backend, "excl_write", None))
    if isinstance(manager.backend, Warns):
        findings += (Finding(text, warning=True) for text in manager.backend.warnings())
    return findings


def findings_fail(findings: Iterable[Finding]) -> bool:
    """Whether one of them leaves data unprotected."""
    return any(finding.error for finding in findings)


def root_of(namespace: str) -> str:
    """The node below which a Hive with that ``hive.zookeeper.namespace`` has its locks."""
    return f"/{namespace.strip('/')}"


def _of_version(version: str, excl_write: bool | None) -> Iterator[Finding]:
    """What a metastore of that *version* grants, and of what it lets in the readers here are not told.

    :param excl_write: whether it has EXCL_WRITE; None where the locks are not kept there.
    """
    calls_itself = " (it calls itself 3.0)" if version in ("2", "3") else ""
    faults = {"2": "HIVE-15077 and HIVE-22888", "3": "HIVE-22888"}.get(version.partition(".")[0])
    wrongly = (
        f"; what it grants wrongly ({faults}) is noticed, and given back" if faults and excl_write is not None else ""
    )
    yield Finding(f"the metastore is of Hive {version}{calls_itself}{wrongly}")
    if excl_write is None:
        return
    pass_by = "INSERT INTO" if excl_write else "INSERT INTO, UPDATE, DELETE and MERGE"
    yield Finding(
        f"on ACID tables Hive's {pass_by} let readers pass, and readers here are not told of them: a job that reads such a "
        "table's files itself is to name it in writes",
        warning=True,
    )


def _of_namespaces(own: NamespaceUse, *others: NamespaceUse) -> Iterator[Finding]:
    """Whether a Hive uses *own*, judged by the nodes there and in *others*."""
    if own.hives:
        yield Finding(f"Hive locks below {own.path}, as this lock store does: {own.hives} of its locks are there now")
        return
    paths = " and ".join(other.path for other in others)
    if others and (own.made_here or not own.objects):
        yield unprotected(
            f"Hive has never locked below {own.path}, and it locks below {paths}: neither sees the other's locks. Name "
            f"the {NAMESPACE} of your Hive in the URL, or as the connection's schema"
        )
    elif own.made_here:
        yield unprotected(
            f"Hive has never locked below {own.path} in this ZooKeeper. Compare host and schema with Hive's "
            f"hive.zookeeper.quorum and {NAMESPACE}, and {CONCURRENCY} with true. If they are right, run LOCK TABLE … SHARED "
            "in Hive, and check again while it stands"
        )


def _untold(manager: LockManager) -> Finding:
    if not manager.capabilities.seen_by_hive:
        return Finding("Hive sees nothing of this lock store: it holds apart only those who lock here", warning=True)
    return Finding(
        "Hive sees these locks where it locks in ZooKeeper, too; nobody was asked whether it does. "
        "Name its metastore or a HiveServer2 to find out: on CDP, HDP 3 and Dataproc it does not",
        warning=True,
    )


def _settings(hive: Hive) -> dict[str, str | None]:
    """Those that matter here, as Hive reads them."""
    settings = {name: value and value.strip() for name, value in hive.settings(SETTINGS).items()}
    return settings | {name: value and value.lower() for name, value in settings.items() if name in TRUTHS}


def _of_settings(
    promises: Capabilities, told_by: str, settings: Mapping[str, str | None], version: str, namespace: str | None
) -> Iterator[Finding]:
    """:param namespace: below which the lock store has its locks in ZooKeeper, if it does."""
    hives = root_of(settings[NAMESPACE] or "")
    txn_manager, lock_manager = (
        (settings[name] or "unknown").rsplit(".", 1)[-1] for name in (TXN_MANAGER, LOCK_MANAGER)
    )
    if settings[CONCURRENCY] not in ("true", None):  # what is neither true nor false is Hive's default
        blind = promises.acquires and not promises.seen_by_hive
        set_it = "" if blind else ". Set it to true for HiveServer2, or keep Hive's sessions away from this data"
        yield Finding(
            f"Hive takes no locks at all, and honours none: {CONCURRENCY} is {settings[CONCURRENCY]} in {told_by}{set_it}",
            warning=True,
            error=not blind,
        )
        return
    in_metastore = txn_manager == "DbTxnManager"
    store = "its metastore" if in_metastore else "ZooKeeper" if lock_manager == "ZooKeeperHiveLockManager" else None
    where = f"{txn_manager}, {lock_manager}" if txn_manager == "DummyTxnManager" else txn_manager
    where = f"{where} in {told_by}"
    if store is None:
        yield unprotected(
            f"where Hive locks is not known ({where}); locks taken here may hold nothing of Hive's apart. Set {TXN_MANAGER} and "
            f"{LOCK_MANAGER} to Hive's own classes"
        )
    elif not promises.acquires:
        yield Finding(f"Hive locks in {store} ({where}); these are the locks that are shown")
    elif not in_metastore and namespace and settings[NAMESPACE] and namespace != hives:
        yield unprotected(
            f"Hive locks in {store} ({where}) below {hives}, and this lock store below {namespace}: neither sees the other's "
            f"locks. Name {NAMESPACE} in the URL, or as the connection's schema"
        )
    elif promises.seen_by_hive and promises.parents is not in_metastore:
        yield Finding(f"Hive locks in {store} ({where}), as this lock store does: each honours the other's locks")
    else:
        url = "metastore://" if in_metastore else "zookeeper://"
        yield unprotected(
            f"Hive locks in {store} ({where}), and sees nothing of this lock store: it holds apart only those who lock "
            f"here. Use {url}"
        )
    if settings.get(JOBS_ONLY) == "true":
        yield unprotected(
            f"only those statements of Hive's lock that run a job: {JOBS_ONLY} is true in {told_by}. A DROP, an ALTER "
            "or a LOAD of Hive's neither waits for locks nor takes any. Set it to false"
        )
    if in_metastore:
        yield from _of_db_txn_manager(promises, settings, version)


def _of_db_txn_manager(promises: Capabilities, settings: Mapping[str, str | None], version: str) -> Iterator[Finding]:
    if settings[EXTERNAL] != "true" and version != "2":
        yield Finding(f"Hive 3 and later do not lock external tables, unless {EXTERNAL} is true", warning=True)
    for name, value, what in (
        (READS, "false", "Hive's readers take no locks"),
        (PLAIN_READS, "false", "Hive's readers of plain tables take no locks"),
        (LOCKLESS, "true", "Hive's readers of ACID tables take no locks"),
        (STRICT, "false", "Hive's INSERT INTO a plain table lets readers and other inserts pass"),
    ):
        if settings.get(name) == value:
            right = "false" if value == "true" else "true"
            yield unprotected(f"{what}: {name} is {value}. Set it to {right}")
    told = [settings[name] for name in REAPERS if settings[name] is not None]
    if promises.expires and told and "true" not in told:
        yield Finding(
            f"this metastore does not expire the locks of the dead ({REAPERS[0]} is false); unless another one over the "
            "same database does, they stay until they are force-released",
            warning=True,
        )


def _of_table(
    table: LockObject,
    promises: Capabilities,
    catalog: Catalog | None,
    settings: Mapping[str, str | None],
    version: str,
) -> Iterator[Finding]:
    known = catalog and catalog.table(table)
    if not known:
        yield unprotected(f"{table} is not known to the metastore: nothing can be said of it. Is the name right?")
        return
    in_metastore = promises.seen_by_hive and not promises.parents
    if known.commits_lock and in_metastore:
        which = "an Iceberg" if known.format == ICEBERG else "a Hudi"
        yield unprotected(
            f"{table} is {which} table: its commits take an EXCLUSIVE lock in the metastore, and wait under a lease of their own "
            f"task; {WHAT_TO_SET}"
        )
    elif known.transactional and not in_metastore:
        yield unprotected(f"{table} is transactional: Hive locks it in its metastore only. Use metastore:// for it")
    elif known.table_type == "EXTERNAL_TABLE" and in_metastore and version != "2" and settings.get(EXTERNAL) != "true":
        yield unprotected(
            f"{table} is external: Hive 3 and later take no locks on it, and honour none. Set {EXTERNAL} to true"
        )
    else:
        yield Finding(f"{table} is locked by Hive as its configuration says")
