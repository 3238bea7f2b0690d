"""Checks whether Hive sees this package's locks, and which tables Hive does not lock.

A lock only stops clients that look for it. Hive looks in one of these places:

- in ZooKeeper, with ``DummyTxnManager`` and its ``hive.lock.manager``, the default of Apache's own configuration;
- in its metastore, with ``DbTxnManager``, as HDP 3, CDP and Dataproc do;
- nowhere, with ``hive.support.concurrency=false``, the default in the code.

Locks in any other place only keep Airflow's tasks apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_hivelock.locks.backend import HasNamespaces, Warns
from airflow_hivelock.locks.hive.catalog import ICEBERG
from airflow_hivelock.locks.hive.commits import WHAT_TO_SET
from airflow_hivelock.locks.hive.properties import (
    CONCURRENCY,
    EXTERNAL,
    IN_METASTORE,
    JOBS_ONLY,
    LOCK_MANAGER,
    LOCKLESS,
    NAMESPACE,
    PLAIN_READS,
    READS,
    REAPERS,
    STRICT,
    TXN_MANAGER,
    root_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_hivelock.locks.backend import Capabilities, NamespaceUse
    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import LockObject

TRUTHS = (CONCURRENCY, JOBS_ONLY, EXTERNAL, READS, PLAIN_READS, LOCKLESS, STRICT, *REAPERS)
"""Settings with the value true or false. Hive reads both in upper or lower case."""

METASTORE = "its metastore"
"""The place of Hive's locks under DbTxnManager, as text."""

SETTINGS = (TXN_MANAGER, LOCK_MANAGER, NAMESPACE, *TRUTHS)


class Hive(Protocol):
    """A source of Hive's settings: a backend of the metastore or HiveServer2, a metastore's catalog, or a
    hive-site.xml.

    The settings of HiveServer2 decide where Hive's queries lock. The metastore's settings may differ.
    """

    @property
    def settings_of(self) -> str:
        """The name of the source, for a finding."""
        ...

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """Return the value of each setting. None: it is not set, or the source does not report it."""
        ...


@runtime_checkable
class ReportsVersion(Protocol):
    """A metastore, as the lock store or as the catalog."""

    def version(self) -> str:
        """Return the version of Hive; see :meth:`.thrift.Metastore.version`."""
        ...


@dataclass(frozen=True)
class Finding:
    """A fact about the protection of data.

    :param text: an error also names the setting to change.
    :param warning: the fact limits the protection.
    :param error: data is unprotected, or its protection cannot be checked. Then ``hivelock check`` fails.
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
    """Return an error: data is unprotected."""
    return Finding(text, warning=True, error=True)


def check(
    manager: LockManager,
    hive: Hive | None = None,
    tables: Iterable[LockObject] = (),
    catalog: Catalog | None = None,
    *,
    namespaces: bool = True,
) -> list[Finding]:
    """Check how far the locks of *manager* protect data from Hive. Findings also report what could not be checked.

    :param hive: the source of Hive's settings. The default is the lock store, if it is part of Hive.
    :param tables: further tables to check, because Hive does not lock all tables. Without a *catalog* a finding
        reports that they were not checked.
    :param namespaces: whether to look in ZooKeeper for namespaces that a Hive uses. A metastore's settings do not show
        them, because HiveServer2 can have other settings.
    :raises StoreUnavailable: a source did not answer.
    """
    asked: Hive | Any = hive or (manager.backend if hasattr(manager.backend, "settings") else None)
    metastore = next((each for each in (manager.backend, asked, catalog) if isinstance(each, ReportsVersion)), None)
    version = metastore.version() if metastore else ""
    namespace = getattr(manager.backend, "namespace", None)
    settings = _settings(asked) if asked else {}
    findings: list[Finding] = []
    if asked:
        findings = list(_of_settings(manager.capabilities, asked.settings_of, settings, version, namespace))
    certain = asked and not isinstance(asked, ReportsVersion)
    if namespaces and not certain and not findings_fail(findings) and isinstance(manager.backend, HasNamespaces):
        findings += _of_namespaces(*manager.backend.namespaces())
    if not findings:
        findings = [_unasked(manager)]
    for table in tables:
        findings += _of_table(table, manager.capabilities, catalog, settings, version)
    if version:
        findings += _of_version(version, getattr(manager.backend, "excl_write", None))
    if isinstance(manager.backend, Warns):
        findings += (Finding(text, warning=True) for text in manager.backend.warnings())
    return findings


def findings_fail(findings: Iterable[Finding]) -> bool:
    """Whether at least one of *findings* is an error."""
    return any(finding.error for finding in findings)


def _of_version(version: str, excl_write: bool | None) -> Iterator[Finding]:
    """Return findings about a metastore of this *version*: its wrong grants, and its writers that readers do not stop.

    :param excl_write: whether the metastore has EXCL_WRITE. None: it is not the lock store.
    """
    calls_itself = " (it calls itself 3.0)" if version in ("2", "3") else ""
    faults = {"2": "HIVE-15077 and HIVE-22888", "3": "HIVE-22888"}.get(version.partition(".")[0])
    wrongly = (
        f". It grants some locks wrongly ({faults}); hivelock notices that and gives them back"
        if faults and excl_write is not None
        else ""
    )
    yield Finding(f"the metastore is of Hive {version}{calls_itself}{wrongly}")
    if excl_write is None:
        return
    pass_by = "INSERT INTO" if excl_write else "INSERT INTO, UPDATE, DELETE and MERGE"
    yield Finding(
        f"on ACID tables Hive lets {pass_by} run while there are readers, and readers here do not wait for them. If a job "
        "reads the files of such a table itself, name the table in writes",
        warning=True,
    )


def _of_namespaces(own: NamespaceUse, *others: NamespaceUse) -> Iterator[Finding]:
    """Return a finding about which namespace Hive uses: the lock store's *own*, or one of the *others*."""
    if own.hives:
        yield Finding(f"Hive locks below {own.path}, as this lock store does. Hive has {own.hives} locks there now")
        return
    paths = " and ".join(other.path for other in others)
    if others and (own.made_here or not own.objects):
        yield unprotected(
            f"Hive has never locked below {own.path}, and it locks below {paths}. So Hive and this lock store do not see each "
            f"other's locks. Set the {NAMESPACE} of your Hive in the URL, or as the connection's schema"
        )
    elif own.made_here:
        yield unprotected(
            f"Hive has never locked below {own.path} in this ZooKeeper. Compare host and schema with Hive's "
            f"hive.zookeeper.quorum and {NAMESPACE}, and {CONCURRENCY} with true. If they are right, run LOCK TABLE … SHARED "
            "in Hive, and check again before you run UNLOCK TABLE"
        )


def _unasked(manager: LockManager) -> Finding:
    if not manager.capabilities.seen_by_hive:
        return Finding("Hive does not see this lock store. Its locks only keep its own users apart", warning=True)
    return Finding(
        "Hive sees these locks only if it also locks in ZooKeeper. No server of Hive was asked about that. "
        "To check it, name Hive's metastore or a HiveServer2. On CDP, HDP 3 and Dataproc, Hive locks elsewhere",
        warning=True,
    )


def _settings(hive: Hive) -> dict[str, str | None]:
    """Return the values of SETTINGS, with true and false in lower case."""
    settings = {name: value and value.strip() for name, value in hive.settings(SETTINGS).items()}
    return settings | {name: value and value.lower() for name, value in settings.items() if name in TRUTHS}


def _of_settings(
    promises: Capabilities, source: str, settings: Mapping[str, str | None], version: str, namespace: str | None
) -> Iterator[Finding]:
    """Return findings from Hive's *settings*.

    :param namespace: the lock store's namespace in ZooKeeper. None: it is another store.
    """
    if settings[CONCURRENCY] not in ("true", None):  # for any other text Hive uses its default
        blind = promises.acquires and not promises.seen_by_hive
        set_it = "" if blind else ". Set it to true for HiveServer2, or keep Hive's sessions away from this data"
        yield Finding(
            f"Hive takes no locks, and waits for none: {CONCURRENCY} is {settings[CONCURRENCY]} in {source}{set_it}",
            warning=True,
            error=not blind,
        )
        return
    txn_manager, lock_manager = (
        (settings[name] or "unknown").rsplit(".", 1)[-1] for name in (TXN_MANAGER, LOCK_MANAGER)
    )
    in_metastore = txn_manager == IN_METASTORE
    store = METASTORE if in_metastore else "ZooKeeper" if lock_manager == "ZooKeeperHiveLockManager" else None
    managers = f"{txn_manager}, {lock_manager}" if txn_manager == "DummyTxnManager" else txn_manager
    yield _of_place(promises, store, f"{managers} in {source}", settings[NAMESPACE], namespace)
    if settings.get(JOBS_ONLY) == "true":
        yield unprotected(
            f"only Hive's statements that run a job take locks: {JOBS_ONLY} is true in {source}. DROP, ALTER and LOAD "
            "in Hive take no locks, and wait for none. Set it to false"
        )
    if in_metastore:
        yield from _of_db_txn_manager(promises, settings, version)


def _of_place(
    promises: Capabilities, store: str | None, where: str, hives_namespace: str | None, namespace: str | None
) -> Finding:
    """Return the finding about the place of Hive's locks.

    :param store: where Hive locks. None: it is unknown.
    :param where: the settings that decide the place, and their source.
    :param namespace: the lock store's namespace in ZooKeeper. None: it is another store.
    """
    in_metastore = store == METASTORE
    hives = root_of(hives_namespace or "")
    if store is None:
        return unprotected(
            f"it is unknown where Hive locks ({where}), so locks here may not stop Hive's queries. Set {TXN_MANAGER} and "
            f"{LOCK_MANAGER} to Hive's own classes"
        )
    if not promises.acquires:
        return Finding(f"Hive locks in {store} ({where}). hivelock shows these locks")
    if not in_metastore and namespace and hives_namespace and namespace != hives:
        return unprotected(
            f"Hive locks in {store} ({where}) below {hives}, and this lock store below {namespace}. They do not see each other's "
            f"locks. Set the {NAMESPACE} of your Hive in the URL, or as the connection's schema"
        )
    if promises.seen_by_hive and promises.parents is not in_metastore:
        return Finding(f"Hive locks in {store} ({where}), as this lock store does. Each waits for the other's locks")
    url = "metastore://" if in_metastore else "zookeeper://"
    return unprotected(
        f"Hive locks in {store} ({where}), and does not see this lock store. Its locks only keep its own users apart. "
        f"Use {url}"
    )


def _of_db_txn_manager(promises: Capabilities, settings: Mapping[str, str | None], version: str) -> Iterator[Finding]:
    if settings[EXTERNAL] != "true" and version != "2":
        yield Finding(f"Hive 3 and later do not lock external tables, unless {EXTERNAL} is true", warning=True)
    for name, value, what in (
        (READS, "false", "Hive's readers take no locks"),
        (PLAIN_READS, "false", "Hive's readers of plain tables take no locks"),
        (LOCKLESS, "true", "Hive's readers of ACID tables take no locks"),
        (STRICT, "false", "Hive's INSERT INTO a plain table does not block readers and other inserts"),
    ):
        if settings.get(name) == value:
            right = "false" if value == "true" else "true"
            yield unprotected(f"{what}: {name} is {value}. Set it to {right}")
    reapers = [settings[name] for name in REAPERS if settings[name] is not None]
    if promises.expires and reapers and "true" not in reapers:
        yield Finding(
            f"this metastore does not end the locks of dead clients ({REAPERS[0]} is false). They stay until they are "
            "force-released, unless another metastore on the same database ends them",
            warning=True,
        )


def _of_table(
    table: LockObject,
    promises: Capabilities,
    catalog: Catalog | None,
    settings: Mapping[str, str | None],
    version: str,
) -> Iterator[Finding]:
    if catalog is None:
        named = "metastore_uri of the connection, or --metastore"
        yield Finding(f"{table} was not checked, because no metastore is named. Name one ({named})", warning=True)
        return
    known = catalog.table(table)
    if not known:
        yield unprotected(f"the metastore does not know {table}, so its protection cannot be checked. Check the name")
        return
    in_metastore = promises.seen_by_hive and not promises.parents
    if known.commits_lock and in_metastore:
        which = "an Iceberg" if known.format == ICEBERG else "a Hudi"
        yield unprotected(
            f"{table} is {which} table. Its commits take an EXCLUSIVE lock in the metastore, and would wait for the lease of "
            f"their own task. To avoid that, {WHAT_TO_SET}"
        )
    elif known.transactional and not in_metastore:
        yield unprotected(f"{table} is transactional, so Hive locks it only in its metastore. Use metastore:// for it")
    elif known.table_type == "EXTERNAL_TABLE" and in_metastore and version != "2" and settings.get(EXTERNAL) != "true":
        yield unprotected(
            f"{table} is external. Hive 3 and later take no locks on it, and wait for none. Set {EXTERNAL} to true"
        )
    else:
        yield Finding(f"Hive locks {table} as its configuration says")
