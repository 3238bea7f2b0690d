"""Hive's properties that concern locks: their names, their defaults in Hive, and functions that read their values.

All other modules use these constants. :mod:`.lock_store` reads the properties in :data:`TAKEN`. The properties in
:data:`ELSEWHERE` have no effect here.
"""

from __future__ import annotations

import re

from airflow_hivelock.locks.errors import InvalidRequest

CONCURRENCY, TXN_MANAGER, LOCK_MANAGER = "hive.support.concurrency", "hive.txn.manager", "hive.lock.manager"
NUMRETRIES, SLEEP = "hive.lock.numretries", "hive.lock.sleep.between.retries"
JOBS_ONLY, QUERY = "hive.lock.mapred.only.operation", "hive.lock.query.string.max.length"
QUORUM, PORT, NAMESPACE = "hive.zookeeper.quorum", "hive.zookeeper.client.port", "hive.zookeeper.namespace"
SESSION = "hive.zookeeper.session.timeout"
ZOOKEEPER_TLS, ZOOKEEPER_KERBEROS = "hive.zookeeper.ssl.client.enable", "hive.zookeeper.kerberos.enabled"
SECURITY = "hadoop.security.authentication"
URIS, SASL, PRINCIPAL = "hive.metastore.uris", "hive.metastore.sasl.enabled", "hive.metastore.kerberos.principal"
METASTORE_TLS, SOCKET = "hive.metastore.use.SSL", "hive.metastore.client.socket.timeout"
TXN_TIMEOUT = "hive.txn.timeout"
CATALOG = "metastore.catalog.default"
STRICT, XLOCK_IOW, XLOCK_WRITE = "hive.txn.strict.locking.mode", "hive.txn.xlock.iow", "hive.txn.xlock.write"
EXTERNAL, READS, PLAIN_READS = "hive.txn.ext.locking.enabled", "hive.txn.read.locks", "hive.txn.nonacid.read.locks"
LOCKLESS = "hive.acid.lockless.reads.enabled"
INITIATOR = "hive.compactor.initiator.on"
REAPERS = (INITIATOR, "metastore.compactor.initiator.on", "metastore.housekeeping.threads.on")
DEFAULT_PARTITION, DYNAMIC = "hive.exec.default.partition.name", "hive.exec.dynamic.partition.mode"

DEFAULTS = {
    CONCURRENCY: "false",
    TXN_MANAGER: "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager",
    LOCK_MANAGER: "org.apache.hadoop.hive.ql.lockmgr.zookeeper.ZooKeeperHiveLockManager",
    PORT: "2181",
    NAMESPACE: "hive_zookeeper_namespace",
    NUMRETRIES: "100",
    SLEEP: "60s",
}
"""Hive's defaults (``HiveConf``, Hive 2.3 to 4)."""

METASTORE_PORT, HIVESERVER2_PORT = 9083, 10_000
"""The defaults of ``hive.metastore.port`` and ``hive.server2.thrift.port``."""

TAKEN = (
    *(CONCURRENCY, TXN_MANAGER, LOCK_MANAGER, QUORUM, PORT, NAMESPACE, SESSION, ZOOKEEPER_TLS, ZOOKEEPER_KERBEROS),
    *(SECURITY, QUERY, URIS, SASL, PRINCIPAL, METASTORE_TLS, SOCKET, NUMRETRIES, SLEEP),
)
"""Properties that this package reads."""

_JAVAS = "hivelock cannot read Java's key stores. Set ca, cert and key to PEM files"
_OWN = "no setting is needed. hivelock tries a release for a minute. After that, the keeper frees the lease"
_SERVERS = "hivelock asks the metastore for its own value"
_RECONNECTS = "no setting is needed. hivelock replaces a lost session until the caller's deadline"
_TRANSACTIONS = "it concerns Hive's own transactions. A lease here has no transaction"

_WRITER = "a writer here takes EXCLUSIVE, unless locks is hive and the extra sets this property"

ELSEWHERE = {
    JOBS_ONLY: "hivelock locks data for every kind of work. If it is true, Hive's own DROP, ALTER and LOAD take no locks, "
    "and hivelock check reports that",
    DEFAULT_PARTITION: "NULL is __HIVE_DEFAULT_PARTITION__ here. If your Hive has another name for it, write that name as the value",
    "hive.lockmgr.zookeeper.default.partition.name": "no lock contains it. Hive only refuses it as the value of a partition",
    "hive.zookeeper.clean.extra.nodes": "both values work. If Hive removes a node, the next lock creates it again",
    "hive.unlock.numretries": _OWN,
    "hive.zookeeper.connection.timeout": _RECONNECTS,
    "hive.zookeeper.connection.max.retries": _RECONNECTS,
    "hive.zookeeper.connection.basesleeptime": _RECONNECTS,
    "hive.zookeeper.ssl.keystore.location": _JAVAS,
    "hive.zookeeper.ssl.keystore.type": _JAVAS,
    "hive.zookeeper.ssl.truststore.location": _JAVAS,
    "hive.zookeeper.ssl.truststore.type": _JAVAS,
    "hive.metastore.truststore.path": _JAVAS,
    TXN_TIMEOUT: _SERVERS,
    "hive.txn.manager.dump.lock.state.on.acquire.timeout": _TRANSACTIONS,
    "hive.txn.heartbeat.threadpool.size": _TRANSACTIONS,
    "hive.txn.max.open.batch": _TRANSACTIONS,
    "hive.max.open.txns": _TRANSACTIONS,
    STRICT: f"it selects the lock type of Hive's INSERT INTO on tables that are not transactional; {_WRITER}",
    EXTERNAL: "hivelock check reports whether Hive locks external tables, from the metastore's own value",
    READS: "hivelock check reports whether Hive's readers lock, from the metastore's own value",
    XLOCK_IOW: f"it selects the lock type of Hive's INSERT OVERWRITE; {_WRITER}",
    XLOCK_WRITE: f"it selects the lock type of Hive's UPDATE and DELETE; {_WRITER}",
    "hive.txn.xlock.ctas": "it selects the lock type of Hive's CREATE TABLE AS SELECT; a writer here takes EXCLUSIVE",
    "hive.txn.xlock.mergeinsert": "it selects the lock type of Hive's MERGE; a writer here takes EXCLUSIVE",
    PLAIN_READS: "it decides whether Hive's readers of tables without transactions lock; a reader here always locks",
    "hive.locks.max.partitions": "hivelock locks the whole table if one transaction cannot contain its partitions, about 2,000",
    INITIATOR: "hivelock check reports whether the metastore frees locks without a heartbeat, from the metastore's own value",
    DYNAMIC: "the option locks in the connection's extra decides what an insert into dynamic partitions locks",
    "hive.server2.authentication.kerberos.principal": "HiveServer2 needs a separate connection",
}
"""Properties that concern locks but have no effect here, each with the reason."""

IN_METASTORE = "DbTxnManager"
"""Hive's transaction manager that keeps locks in the metastore."""

_COUNT = re.compile("[0-9]{1,12}")
_TIME = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z]*)")
_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WORDS = {"msec": "ms", "sec": "s", "min": "m", "hour": "h", "day": "d"}
"""How Hive's long units begin, as in ``seconds`` (``HiveConf.unitFor``)."""


def root_of(namespace: str) -> str:
    """Return the node in ZooKeeper that contains the locks of a Hive with this *namespace*."""
    return f"/{namespace.strip('/')}"


def seconds(text: str) -> float | None:
    """Return the time in *text* in seconds. *text* is like ``300s``, ``5 minutes``, ``100 ms`` or ``300``. None: it is
    no time."""
    if (found := _TIME.fullmatch(text.strip().lower())) is None:
        return None
    unit = next((short for word, short in _WORDS.items() if found[2].startswith(word)), found[2])
    return float(found[1]) * _UNITS_S[unit] if unit in _UNITS_S else None


def time_s(text: str, name: str, where: str = "") -> float:
    """Return the time in *text* in seconds.

    :param name: the name of the property, for the error message.
    :param where: its place, for the error message, as in `` in hive-site.xml:3``.
    :raises InvalidRequest: *text* is not a time.
    """
    if (found := seconds(text)) is None:
        raise InvalidRequest(f"{name}={text!r:.80}{where} is not a time, as in 60s")
    return found


def count(text: str, name: str, where: str = "") -> int:
    """Return the whole number in *text*. The other parameters are those of :func:`time_s`.

    :raises InvalidRequest: *text* is not a whole number.
    """
    if not _COUNT.fullmatch(text):
        raise InvalidRequest(f"{name}={text!r:.80}{where} is not a whole number")
    return int(text)


def patience_s(retries: str | None, sleep: str | None, names: tuple[str, str] = (NUMRETRIES, SLEEP)) -> float | None:
    """Return for how long Hive tries to lock, in seconds: *retries* times *sleep*. None: neither is set.

    :param names: the names of both, for the error message.
    :raises InvalidRequest: *retries* is not a whole number, or *sleep* is not a time.
    """
    if retries is None and sleep is None:
        return None
    tries = count(DEFAULTS[NUMRETRIES] if retries is None else retries, names[0])
    return tries * time_s(DEFAULTS[SLEEP] if sleep is None else sleep, names[1])
