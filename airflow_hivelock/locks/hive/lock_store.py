"""Builds the URL of a lock store from the fields of a connection, or from Hive's own settings.

Each field keeps its source, for ``hivelock check``. :mod:`.properties` has the names and defaults of Hive's settings.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive import properties as hive
from airflow_hivelock.locks.url import shown, truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_hivelock.locks.hive.site import Site

_ABOUT_LOCKS = ("hive.lock.", "hive.lockmgr.", "hive.locks.", "hive.txn.", "hive.unlock.", "hive.zookeeper.")

MOST_SESSION_S = 40.0
"""The longest session that ZooKeeper grants by default, in seconds. The queue waits as long for a dead waiter. Hive
asks for 20 minutes, which would be too long.
"""

MOST_ANSWER_S = 60.0
"""The longest time-out for a call to a metastore, in seconds. A call occupies a thread of the triggerer, and Hive's own
time-out of 10 minutes would be too long.
"""

_SERVER = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Sourced:
    """A setting with its source.

    :param name: its name in the connection or in the URL.
    """

    name: str
    value: str
    source: str


def of_site(site: Site, backend: str = "") -> dict[str, Sourced]:
    """Return the fields of a connection that *site* supplies, by name. They include fields of the extra.

    :param backend: the kind of lock store, if the connection or the URL has it. *site* supplies it otherwise.
    :raises InvalidRequest: a value is invalid, or this Hive's locks are in a place that only Hive can read.
    """
    return {each.name: each for each in _store(site, backend)} | common_fields(site)


def common_fields(site: Site) -> dict[str, Sourced]:
    """Return the fields that *site* supplies for each kind of lock store: the catalog, and the longest wait for locks.

    :raises InvalidRequest: a value is invalid.
    """
    fields = {each.name: each for each in _patience(site)}
    if uris := site.value(hive.URIS):
        options = {each.name: each.value for each in _metastore_security(site)}
        query = f"?{urlencode(options)}" if options else ""
        hosts = ",".join(_hosts(site, uris))
        fields["metastore_uri"] = Sourced("metastore_uri", f"thrift://{hosts}{query}", _from(site, hive.URIS))
    return fields


RETRIES = ("numretries", "sleep_between_retries")

NOT_OF_THE_STORE = ("backend", "host", "schema", "metastore_uri", *RETRIES)
"""Fields that are not options of the lock store's URL."""


def patience_s(fields: Mapping[str, Sourced]) -> float | None:
    """Return the longest wait for locks in these fields, in seconds. None: they set none.

    :raises InvalidRequest: a value is invalid.
    """
    retries, sleep = (fields[name].value if name in fields else None for name in RETRIES)
    return hive.patience_s(retries, sleep, RETRIES)


def url(fields: Mapping[str, Sourced]) -> str:
    """Return the URL of the lock store with these fields.

    :raises InvalidRequest: the fields have no servers.
    """
    values = {name: each.value for name, each in fields.items()}
    options = {name: value for name, value in values.items() if name not in NOT_OF_THE_STORE}
    return url_of(values["backend"], values.get("host", ""), values.get("schema", ""), options)


@dataclass(frozen=True)
class Kind:
    """How the URL of one kind of lock store is built.

    :param port: the default port; 0: the store has no servers.
    :param path: the default path. None: the schema must name the database.
    :param login: the store takes a login and a password.
    :param names_servers: the property of Hive that contains the servers; empty if there is none.
    """

    port: int = 0
    path: str | None = ""
    login: bool = False
    names_servers: str = ""


KINDS = {
    "zookeeper": Kind(
        int(hive.DEFAULTS[hive.PORT]), hive.DEFAULTS[hive.NAMESPACE], login=True, names_servers=hive.QUORUM
    ),
    "metastore": Kind(hive.METASTORE_PORT, names_servers=hive.URIS),
    "hiveserver2": Kind(hive.HIVESERVER2_PORT, login=True),
    "postgresql": Kind(5432, None, login=True),
    "mysql": Kind(3306, None, login=True),
    "sqlite": Kind(),
    "memory": Kind(),
}


def url_of(
    backend: Any,
    host: str,
    schema: str,
    options: Mapping[str, str],
    *,
    login: str = "",
    password: str = "",
    port: int | None = None,
) -> str:
    """Return the URL of a lock store for :func:`airflow_hivelock.locks.connect`.

    :param host: the servers, separated by commas. ZooKeeper's chroot can follow. For SQLite: the file.
    :param schema: Hive's namespace in ZooKeeper, or the name of the database.
    :param port: the port of each server that has none in *host*. The default is the store's.
    :raises InvalidRequest: a part is invalid.
    """
    kind = KINDS.get(backend) if isinstance(backend, str) else None
    if kind is None:
        raise InvalidRequest(f"backend {backend!r} is unknown. Use one of {', '.join(KINDS)}")
    if (login or password) and not kind.login:
        raise InvalidRequest(f"it has a login or a password, but {backend} takes none. Remove them")
    host, path, options = host.strip(), schema.strip("/") or kind.path, dict(options)
    if "://" in host:  # the text is not shown, because a URL can contain a password
        raise InvalidRequest(
            "its host contains '://'. Write only the servers there, or the file, without a URL's scheme"
        )
    if path is None:
        raise InvalidRequest("it names no database. Write it in the schema. Do not use the database of Airflow itself")
    if backend == "zookeeper":
        host, _, chroot = host.partition("/")
        if chroot:
            options["chroot"] = chroot.strip()  # as in ZooKeeper's own connect string
    query = f"?{urlencode(options, errors='replace')}" if options else ""
    if backend == "memory":
        return f"memory://{host}{query}"
    if backend == "sqlite":
        if not host.startswith("/"):  # each process can have its own folder, and so a file of its own
            raise InvalidRequest(
                f"host={host!r:.80} is not the whole path of a file. sqlite needs one, as in /var/lib/airflow/leases.db"
            )
        return f"sqlite:///{quote(host)}{query}"
    hosts = [each.strip() for each in host.split(",") if each.strip()]
    if not hosts:
        unset = f", and {kind.names_servers} is not set in a hive-site.xml" if kind.names_servers else ""
        raise InvalidRequest(
            f"no host is given{unset}. Name the servers (--url, or the connection's host), as in host1:{kind.port},host2:{kind.port}"
        )
    # An IPv6 address has colons of its own, in brackets.
    servers = ",".join(each if ":" in each.rpartition("]")[2] else f"{each}:{port or kind.port}" for each in hosts)
    user, secret = (quote(part, safe="", errors="replace") for part in (login, password))
    who = f"{user}:{secret}@" if secret else f"{user}@" if user else ""
    return f"{backend}://{who}{servers}" + (f"/{quote(path)}" if path else "") + query


def of_url(given: str, source: str) -> dict[str, Sourced]:
    """Return the fields that a URL contains, without passwords."""
    parts = urlsplit(shown(given))
    path = unquote(parts.path)
    host, schema = (path[1:], "") if parts.scheme == "sqlite" else (parts.netloc, path.strip("/"))
    fields = {"backend": parts.scheme, "host": host, "schema": schema}
    fields |= dict(parse_qsl(parts.query, keep_blank_values=True))
    return {name: Sourced(name, value, source) for name, value in fields.items() if value}


def unused(site: Site) -> Iterator[Sourced]:
    """Yield the settings of *site* that concern locks but have no effect here, each with the reason."""
    about = (name for name in site.properties if name.startswith(_ABOUT_LOCKS) and "password" not in name.lower())
    for name in dict.fromkeys((*hive.ELSEWHERE, *about)):
        found = site.find(name)
        if found is not None and name not in hive.TAKEN:
            why = hive.ELSEWHERE.get(name, "hivelock does not know it")
            yield Sourced(name, found.value.strip(), f"{site.where(name)}; not used: {why}")


def _store(site: Site, backend: str) -> Iterator[Sourced]:
    if not backend:
        chosen = _backend(site)
        backend = chosen.value
        yield chosen
    if backend == "zookeeper":
        yield from _zookeeper(site)
    elif backend == "metastore":
        if uris := site.value(hive.URIS):
            yield Sourced("host", ",".join(_hosts(site, uris)), _from(site, hive.URIS))
        yield from _metastore_security(site)
        if (answer_s := _time_s(site, hive.SOCKET)) is not None:
            # For Thrift, 0 is no limit.
            yield _at_most("answer_s", answer_s or math.inf, MOST_ANSWER_S, _from(site, hive.SOCKET))


def _backend(site: Site) -> Sourced:
    found = site.settings((hive.TXN_MANAGER, hive.LOCK_MANAGER))
    txn_manager, lock_manager = (
        (found[name] or "").rpartition(".")[2] for name in (hive.TXN_MANAGER, hive.LOCK_MANAGER)
    )
    if txn_manager == hive.IN_METASTORE:
        return Sourced("backend", "metastore", _from(site, hive.TXN_MANAGER))
    if (txn_manager, lock_manager) == ("DummyTxnManager", "ZooKeeperHiveLockManager"):
        return Sourced("backend", "zookeeper", _from(site, hive.LOCK_MANAGER))
    raise InvalidRequest(
        f"{site.file}: Hive locks with {txn_manager:.80} and {lock_manager:.80}, and only Hive itself can read these locks. "
        "Name another lock store: --url, or backend and host in the connection"
    )


def _zookeeper(site: Site) -> Iterator[Sourced]:
    if quorum := site.value(hive.QUORUM):
        hosts, _, chroot = quorum.partition("/")
        port = _count(site, hive.PORT, site.value(hive.PORT) or hive.DEFAULTS[hive.PORT])
        servers = [_server(each, port, site, hive.QUORUM) for part in hosts.split(",") if (each := part.strip())]
        yield Sourced("host", ",".join(servers), _from(site, hive.QUORUM, hive.PORT))
        if chroot:
            yield Sourced("chroot", chroot, _from(site, hive.QUORUM))
    yield Sourced("schema", site.settings([hive.NAMESPACE])[hive.NAMESPACE] or "", _from(site, hive.NAMESPACE))
    if session_s := _time_s(site, hive.SESSION, per_s=1000):  # for 0 the server uses its shortest session
        yield _at_most("timeout_s", session_s, MOST_SESSION_S, _from(site, hive.SESSION))
    if _truth(site, hive.ZOOKEEPER_TLS):
        yield Sourced("ssl", "true", _from(site, hive.ZOOKEEPER_TLS))
    kerberos = (site.value(hive.SECURITY) or "").lower() == "kerberos"
    secure = hive.SECURITY if kerberos else hive.SASL if _truth(site, hive.SASL) else None
    if secure and _truth(site, hive.ZOOKEEPER_KERBEROS, default=True):
        yield Sourced("auth", "KERBEROS", _from(site, secure))
    if (most := site.value(hive.QUERY)) is not None:
        yield Sourced("query_chars", _count(site, hive.QUERY, most), _from(site, hive.QUERY))


def _metastore_security(site: Site) -> Iterator[Sourced]:
    if _truth(site, hive.SASL):
        yield Sourced("auth", "KERBEROS", _from(site, hive.SASL))
        if principal := site.value(hive.PRINCIPAL):
            service = principal.partition("@")[0].partition("/")[0]
            yield Sourced("kerberos_service_name", service, _from(site, hive.PRINCIPAL))
    if _truth(site, hive.METASTORE_TLS):
        yield Sourced("ssl", "true", _from(site, hive.METASTORE_TLS))


def _patience(site: Site) -> Iterator[Sourced]:
    """Yield the fields for the longest wait for locks, if *site* sets it."""
    retries, sleep = site.value(hive.NUMRETRIES), site.value(hive.SLEEP)
    if retries is None and sleep is None:
        return
    _time_s(site, hive.SLEEP)
    tries = _count(site, hive.NUMRETRIES, retries or hive.DEFAULTS[hive.NUMRETRIES])
    yield Sourced(RETRIES[0], tries, _from(site, hive.NUMRETRIES))
    yield Sourced(RETRIES[1], sleep or hive.DEFAULTS[hive.SLEEP], _from(site, hive.SLEEP))


def _hosts(site: Site, uris: str) -> list[str]:
    """Return the servers in *uris*, as in ``thrift://host1:9083,thrift://host2:9083``."""
    hosts = (part.strip().removeprefix("thrift://").rstrip("/") for part in uris.split(","))
    return [_server(host, "", site, hive.URIS) for host in hosts if host]


def _server(text: str, port: str, site: Site, name: str) -> str:
    """Return the server *text* with its port.

    :param port: the default port. If it is empty, *text* needs no port.
    """
    found = _SERVER.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{name}: {text!r:.80} in {site.where(name)} is not a server. Write host or host:port")
    return text if found[1] or not port else f"{text}:{port}"


def _from(site: Site, *names: str) -> str:
    set_here = [name for name in names if site.value(name) is not None] or names[:1]
    return "; ".join(f"{name}, {site.where(name)}" for name in set_here)


def _at_most(name: str, found_s: float, most_s: float, source: str) -> Sourced:
    cut = f"; {most_s:g} s at most" if found_s > most_s else ""
    return Sourced(name, f"{min(found_s, most_s):g}", f"{source}{cut}")


def _time_s(site: Site, name: str, per_s: int = 1) -> float | None:
    """Return the time that *name* sets, in seconds. None: it is not set.

    :param per_s: how many of the setting's own units are in a second. It is for a value without a unit.
    """
    text = site.value(name)
    if text is None:
        return None
    found = hive.time_s(text, name, f" in {site.where(name)}")
    return found / per_s if text.isdecimal() else found


def _count(site: Site, name: str, text: str) -> str:
    hive.count(text, name, f" in {site.where(name)}")
    return text


def _truth(site: Site, name: str, *, default: bool = False) -> bool:
    text = site.value(name)
    return default if text is None else truth(name, text, f" in {site.where(name)}")
