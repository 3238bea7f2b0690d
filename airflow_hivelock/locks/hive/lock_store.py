"""Where Hive locks, by its own settings: the same store as a connection's fields or a URL name it here, with where each part
was said. A property is taken over, or has no meaning here, and :data:`ELSEWHERE` says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.duration import seconds
from airflow_hivelock.locks.hive.settings import DEFAULT_NUMRETRIES, DEFAULT_SLEEP, NUMRETRIES, SLEEP
from airflow_hivelock.locks.url import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_hivelock.locks.hive.site import Site

CONCURRENCY, TXN_MANAGER, LOCK_MANAGER = "hive.support.concurrency", "hive.txn.manager", "hive.lock.manager"
QUORUM, PORT, NAMESPACE = "hive.zookeeper.quorum", "hive.zookeeper.client.port", "hive.zookeeper.namespace"
SESSION = "hive.zookeeper.session.timeout"
ZOOKEEPER_TLS, ZOOKEEPER_KERBEROS = "hive.zookeeper.ssl.client.enable", "hive.zookeeper.kerberos.enabled"
SECURITY = "hadoop.security.authentication"
QUERY = "hive.lock.query.string.max.length"
URIS, SASL, PRINCIPAL = "hive.metastore.uris", "hive.metastore.sasl.enabled", "hive.metastore.kerberos.principal"
METASTORE_TLS, SOCKET = "hive.metastore.use.SSL", "hive.metastore.client.socket.timeout"
MAPRED_ONLY, DEFAULT_PARTITION = "hive.lock.mapred.only.operation", "hive.exec.default.partition.name"

TAKEN = (
    *(CONCURRENCY, TXN_MANAGER, LOCK_MANAGER, QUORUM, PORT, NAMESPACE, SESSION, ZOOKEEPER_TLS, ZOOKEEPER_KERBEROS),
    *(SECURITY, QUERY, URIS, SASL, PRINCIPAL, METASTORE_TLS, SOCKET, NUMRETRIES, SLEEP),
)
"""What is taken over, or at least looked at."""

_JAVAS = "Java's key stores cannot be read here: give ca, cert and key, files of PEM"
_OWN = "nothing to set: a release is tried for a minute, and what still stands then is freed later"
_SERVERS = "the metastore itself is asked, whose value counts"
_RECONNECTS = "nothing to set: a lost session is made anew until the caller's deadline"
_TRANSACTIONS = "for transactions of Hive's own: a lease here is a lock without one"

_WRITER = "a writer here takes EXCLUSIVE, unless locks is hive and the extra says this, too"

ELSEWHERE = {
    MAPRED_ONLY: "what is named here is locked whatever runs. Where it is true, Hive's own DROP, ALTER and LOAD neither wait nor "
    "are waited for, and hivelock check warns of it",
    DEFAULT_PARTITION: "a null is __HIVE_DEFAULT_PARTITION__ here; under another name write that name as the value",
    "hive.lockmgr.zookeeper.default.partition.name": "stands in no lock: Hive only refuses it as a partition's value",
    "hive.zookeeper.clean.extra.nodes": "both ways are borne: what Hive removes, the next lock makes again",
    "hive.unlock.numretries": _OWN,
    "hive.zookeeper.connection.timeout": _RECONNECTS,
    "hive.zookeeper.connection.max.retries": _RECONNECTS,
    "hive.zookeeper.connection.basesleeptime": _RECONNECTS,
    "hive.zookeeper.ssl.keystore.location": _JAVAS,
    "hive.zookeeper.ssl.keystore.type": _JAVAS,
    "hive.zookeeper.ssl.truststore.location": _JAVAS,
    "hive.zookeeper.ssl.truststore.type": _JAVAS,
    "hive.metastore.truststore.path": _JAVAS,
    "hive.txn.timeout": _SERVERS,
    "hive.txn.manager.dump.lock.state.on.acquire.timeout": _TRANSACTIONS,
    "hive.txn.heartbeat.threadpool.size": _TRANSACTIONS,
    "hive.txn.max.open.batch": _TRANSACTIONS,
    "hive.max.open.txns": _TRANSACTIONS,
    "hive.txn.strict.locking.mode": f"what Hive's INSERT INTO takes on tables that are not transactional; {_WRITER}",
    "hive.txn.ext.locking.enabled": "whether Hive locks external tables: hivelock check says it, of the metastore's own value",
    "hive.txn.read.locks": "whether Hive's readers lock: hivelock check says it, of the metastore's own value",
    "hive.txn.xlock.iow": f"which of its types Hive's INSERT OVERWRITE takes; {_WRITER}",
    "hive.txn.xlock.write": f"which of its types Hive's UPDATE and DELETE take; {_WRITER}",
    "hive.txn.xlock.ctas": "which of its types Hive's CREATE TABLE AS SELECT takes; a writer here takes EXCLUSIVE",
    "hive.txn.xlock.mergeinsert": "which of its types Hive's MERGE takes; a writer here takes EXCLUSIVE",
    "hive.txn.nonacid.read.locks": "whether Hive's readers of tables without transactions lock; a reader here does",
    "hive.locks.max.partitions": "here the table is locked instead where one transaction cannot carry its partitions, about 2,000",
    "hive.compactor.initiator.on": "whether the metastore frees what has no heartbeat: hivelock check says it, of its own value",
    "hive.exec.dynamic.partition.mode": "locks says what an insert into dynamic partitions locks",
    "hive.server2.authentication.kerberos.principal": "HiveServer2 is looked at by a connection of its own",
}
"""Properties that bear on locks and change nothing here, and why."""

_ABOUT_LOCKS = ("hive.lock.", "hive.lockmgr.", "hive.locks.", "hive.txn.", "hive.unlock.", "hive.zookeeper.")

MOST_SESSION_S = 40.0
"""What a ZooKeeper grants at most by its own default. Behind a dead waiter the queue stands for so long; Hive's is 20 minutes."""

MOST_ANSWER_S = 60.0
"""A call to a metastore has a thread of the triggerer meanwhile; Hive's is 10 minutes."""

_COUNT = re.compile("[0-9]{1,12}")
_SERVER = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Sourced:
    """A setting as it is used here. :param name: the connection's, or the URL's; *source*: where it was said."""

    name: str
    value: str
    source: str


def of_site(site: Site, backend: str = "") -> dict[str, Sourced]:
    """The fields of a connection that *site* stands for, those of its extra among them, by name.

    :param backend: the lock store, where that is said elsewhere: what is another's is left out then.
    :raises InvalidRequest: a value that cannot be meant, or a Hive that locks where nobody else can.
    """
    return {each.name: each for each in _store(site, backend)} | beside(site)


def beside(site: Site) -> dict[str, Sourced]:
    """What *site* says that goes with any lock store: where tables are looked up, and how long locks are waited for.

    :raises InvalidRequest: a value that cannot be meant.
    """
    said = {each.name: each for each in _patience(site)}
    if uris := site.value(URIS):
        options = {each.name: each.value for each in _metastore_security(site)}
        query = f"?{urlencode(options)}" if options else ""
        first = next(iter(_hosts(site, uris)), "")
        said["metastore_uri"] = Sourced("metastore_uri", f"thrift://{first}{query}", _from(site, URIS))
    return said


def patience_s(said: Mapping[str, Sourced]) -> float | None:
    """How long Hive tries; None where nothing is said of it."""
    if "numretries" not in said:
        return None
    return int(said["numretries"].value) * (seconds(said["sleep_between_retries"].value) or 0.0)


def url(said: Mapping[str, Sourced]) -> str:
    """The lock store of such fields.

    :raises InvalidRequest: they name no servers.
    """
    values = {name: each.value for name, each in said.items()}
    if not values.get("host"):
        raise InvalidRequest(
            f"no servers are named: {QUORUM if values['backend'] == 'zookeeper' else URIS} is not set there. Name the lock "
            "store yourself: --url, or backend and host in the connection"
        )
    options = {name: value for name, value in values.items() if name not in NOT_OF_THE_STORE}
    query = f"?{urlencode(options)}" if options else ""
    return f"{values['backend']}://{values['host']}/{quote(values.get('schema', ''))}{query}"


NOT_OF_THE_STORE = ("backend", "host", "schema", "metastore_uri", "numretries", "sleep_between_retries")
"""Fields that are no option of the lock store's URL."""


def of_url(given: str, source: str) -> dict[str, Sourced]:
    """The same, out of a URL; no passwords."""
    parts = urlsplit(shown(given))
    fields = {"backend": parts.scheme, "host": parts.netloc, "schema": unquote(parts.path.strip("/"))}
    fields |= dict(parse_qsl(parts.query, keep_blank_values=True))
    return {name: Sourced(name, value, source) for name, value in fields.items() if value}


def unused(site: Site) -> Iterator[Sourced]:
    """What *site* says that bears on locks, and changes nothing here."""
    about = (name for name in site.properties if name.startswith(_ABOUT_LOCKS) and "password" not in name.lower())
    for name in dict.fromkeys((*ELSEWHERE, *about)):
        found = site.find(name)
        if found is not None and name not in TAKEN:
            why = ELSEWHERE.get(name, "it is not known here")
            yield Sourced(name, found.value.strip(), f"{site.where(name)}; not taken over: {why}")


def _store(site: Site, backend: str) -> Iterator[Sourced]:
    if not backend:
        chosen = _backend(site)
        backend = chosen.value
        yield chosen
    if backend == "zookeeper":
        yield from _zookeeper(site)
    elif backend == "metastore":
        if uris := site.value(URIS):
            yield Sourced("host", ",".join(_hosts(site, uris)), _from(site, URIS))
        yield from _metastore_security(site)
        if (answer_s := _time_s(site, SOCKET)) is not None:
            yield _at_most("answer_s", answer_s, MOST_ANSWER_S, _from(site, SOCKET))


def _backend(site: Site) -> Sourced:
    found = site.settings((TXN_MANAGER, LOCK_MANAGER))
    txn_manager, lock_manager = ((found[name] or "").rpartition(".")[2] for name in (TXN_MANAGER, LOCK_MANAGER))
    if txn_manager == "DbTxnManager":
        return Sourced("backend", "metastore", _from(site, TXN_MANAGER))
    if (txn_manager, lock_manager) == ("DummyTxnManager", "ZooKeeperHiveLockManager"):
        return Sourced("backend", "zookeeper", _from(site, LOCK_MANAGER))
    raise InvalidRequest(
        f"{site.file}: Hive locks by {txn_manager:.80} and {lock_manager:.80}, where nobody but itself can look. Name a lock "
        "store yourself: --url, or backend and host in the connection"
    )


def _zookeeper(site: Site) -> Iterator[Sourced]:
    if quorum := site.value(QUORUM):
        hosts, _, chroot = quorum.partition("/")
        port = _count(site, PORT, site.value(PORT) or "2181")
        servers = [_server(each, port, site, QUORUM) for part in hosts.split(",") if (each := part.strip())]
        yield Sourced("host", ",".join(servers), _from(site, QUORUM, PORT))
        if chroot:
            yield Sourced("chroot", chroot, _from(site, QUORUM))
    yield Sourced("schema", site.settings([NAMESPACE])[NAMESPACE] or "", _from(site, NAMESPACE))
    if session_s := _time_s(site, SESSION, per_s=1000):  # of 0 the server makes its least
        yield _at_most("timeout_s", session_s, MOST_SESSION_S, _from(site, SESSION))
    if _truth(site, ZOOKEEPER_TLS):
        yield Sourced("ssl", "true", _from(site, ZOOKEEPER_TLS))
    secure = SECURITY if (site.value(SECURITY) or "").lower() == "kerberos" else SASL if _truth(site, SASL) else None
    if secure and _truth(site, ZOOKEEPER_KERBEROS, default=True):
        yield Sourced("auth", "KERBEROS", _from(site, secure))
    if (most := site.value(QUERY)) is not None:
        yield Sourced("query_chars", _count(site, QUERY, most), _from(site, QUERY))


def _metastore_security(site: Site) -> Iterator[Sourced]:
    if _truth(site, SASL):
        yield Sourced("auth", "KERBEROS", _from(site, SASL))
        if principal := site.value(PRINCIPAL):
            service = principal.partition("@")[0].partition("/")[0]
            yield Sourced("kerberos_service_name", service, _from(site, PRINCIPAL))
    if _truth(site, METASTORE_TLS):
        yield Sourced("ssl", "true", _from(site, METASTORE_TLS))


def _patience(site: Site) -> Iterator[Sourced]:
    """How long Hive tries, where the file says something of it."""
    retries, sleep = site.value(NUMRETRIES), site.value(SLEEP)
    if retries is None and sleep is None:
        return
    _time_s(site, SLEEP)
    yield Sourced("numretries", _count(site, NUMRETRIES, retries or str(DEFAULT_NUMRETRIES)), _from(site, NUMRETRIES))
    yield Sourced("sleep_between_retries", sleep or DEFAULT_SLEEP, _from(site, SLEEP))


def _hosts(site: Site, uris: str) -> list[str]:
    """Of ``thrift://host1:9083,thrift://host2:9083``."""
    hosts = (part.strip().removeprefix("thrift://").rstrip("/") for part in uris.split(","))
    return [_server(host, "", site, URIS) for host in hosts if host]


def _server(text: str, port: str, site: Site, name: str) -> str:
    """:param port: of one that names none; "": it may stay without."""
    found = _SERVER.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{name}: {text!r:.80} in {site.where(name)} is not a server; write host or host:port")
    return text if found[1] or not port else f"{text}:{port}"


def _from(site: Site, *names: str) -> str:
    said = [name for name in names if site.value(name) is not None] or names[:1]
    return "; ".join(f"{name}, {site.where(name)}" for name in said)


def _at_most(name: str, found_s: float, most_s: float, source: str) -> Sourced:
    cut = f"; {most_s:g} s at most" if found_s > most_s else ""
    return Sourced(name, f"{min(found_s, most_s):g}", f"{source}{cut}")


def _time_s(site: Site, name: str, per_s: int = 1) -> float | None:
    """A time; without a unit it is in seconds, or in as many parts *per_s* as Hive counts."""
    text = site.value(name)
    if text is None:
        return None
    found = seconds(text)
    if found is None:
        raise InvalidRequest(f"{name}={text!r:.80} in {site.where(name)} is not a time, as in 60s")
    return found / per_s if text.isdecimal() else found


def _count(site: Site, name: str, text: str) -> str:
    if not _COUNT.fullmatch(text):
        raise InvalidRequest(f"{name}={text!r:.80} in {site.where(name)} is not a whole number")
    return text


def _truth(site: Site, name: str, *, default: bool = False) -> bool:
    text = site.value(name)
    if text is not None and text.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name}={text!r:.80} in {site.where(name)}: use true or false")
    return default if text is None else text.lower() == "true"
