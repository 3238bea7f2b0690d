"""What a connection of type ``hivelock`` says: which lock store, who this Airflow is in it, and how it locks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.duration import seconds
from airflow_hivelock.locks.url import check, shown

if TYPE_CHECKING:
    from airflow_hivelock.locks.plan import Dynamic

HIVE_NAMESPACE = "hive_zookeeper_namespace"
"""Hive's default of ``hive.zookeeper.namespace``."""

NUMRETRIES, SLEEP = 100, "60s"
"""Hive's defaults of ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries``."""

PORTS = {"zookeeper": 2181, "metastore": 9083, "hiveserver2": 10000, "postgresql": 5432}
BACKENDS = (*PORTS, "sqlite", "memory")
LOGINS = ("zookeeper", "postgresql", "hiveserver2")

_OURS = ("backend", "installation", "metastore_uri", "concurrency", "numretries", "sleep_between_retries", "dynamic")
"""What the extra says to Airflow's side; all else in it are options of the lock store's URL."""

_COUNT = re.compile("[0-9]{1,12}")
MOST_INSTALLATION = 250


@dataclass(frozen=True)
class Settings:
    """What a connection says.

    :param url: the lock store, as :func:`airflow_hivelock.locks.connect` takes it; may hold a password.
    :param installation: the id of this Airflow among those that share the lock store.
    :param metastore_uri: where partitions are looked up; empty for nowhere.
    :param concurrency: whether to lock at all, as ``hive.support.concurrency``.
    :param lock_timeout_s: how long to wait for locks where a task does not say; None: as long as it takes.
    :param dynamic: what SQL with dynamic partitions locks, as :func:`~airflow_hivelock.locks.plan.plan_statements` has it.
    """

    url: str = field(repr=False)
    installation: str
    metastore_uri: str = field(default="", repr=False)
    concurrency: bool = True
    lock_timeout_s: float | None = None
    dynamic: Dynamic = "documented"

    @classmethod
    def of(cls, connection: Any) -> Settings:
        """Read *connection*.

        :raises InvalidRequest: for one that cannot be meant.
        """
        for what in ("host", "schema", "login"):
            if not (getattr(connection, what) or "").isprintable():
                raise InvalidRequest(f"its {what} holds characters that are in no {what}")
        extra: dict[str, Any] = connection.extra_dejson
        backend = extra.get("backend") or "zookeeper"
        if backend not in BACKENDS:
            raise InvalidRequest(f"backend {backend!r} is not known; use one of {', '.join(BACKENDS)}")
        url = _url(backend, connection)
        options = {name: value for name, value in extra.items() if name not in _OURS and value not in (None, "")}
        if backend == "zookeeper" and (chroot := (connection.host or "").partition("/")[2]):
            options["chroot"] = chroot.strip()  # as in ZooKeeper's own connect string
        if options:
            url += "?" + urlencode({name: _text(value) for name, value in options.items()}, errors="replace")
        check(url)
        installation = extra.get("installation") or ("local" if backend == "memory" else "")
        if not isinstance(installation, str) or not installation.isprintable() or len(installation) > MOST_INSTALLATION:
            raise InvalidRequest(
                f"installation={installation!r:.80} is not an id; give a text of up to {MOST_INSTALLATION} printable characters"
            )
        if not installation.strip():
            raise InvalidRequest(
                'it has no installation id; name this Airflow in the extra, as in {"installation": "prod"}, '
                "differently from every other Airflow on the same lock store"
            )
        dynamic = extra.get("dynamic", "documented")
        if dynamic not in ("documented", "hive"):
            raise InvalidRequest(f"dynamic={dynamic!r} is neither 'documented' nor 'hive'")
        concurrency = extra.get("concurrency", True)
        if not isinstance(concurrency, bool):
            raise InvalidRequest(f"concurrency={concurrency!r} is neither true nor false")
        metastore_uri = extra.get("metastore_uri") or ""
        if not isinstance(metastore_uri, str):
            raise InvalidRequest(f"metastore_uri={metastore_uri!r:.80} is not a URI; write thrift://metastore:9083")
        return cls(url, installation, metastore_uri, concurrency, _lock_timeout_s(extra), dynamic)

    @property
    def shown_url(self) -> str:
        """The lock store without its passwords."""
        return shown(self.url)


def _url(backend: str, connection: Any) -> str:
    """The lock store's URL, but for its options."""
    host, schema = (connection.host or "").strip(), (connection.schema or "").strip("/")
    if (connection.login or connection.password) and backend not in LOGINS:
        raise InvalidRequest(f"it has a login or a password, and {backend} takes none; leave them out")
    match backend:
        case "memory":
            return f"memory://{host}"
        case "sqlite":
            if not host:
                raise InvalidRequest("it has no host; for sqlite that is the file, as in /var/lib/airflow/leases.db")
            return f"sqlite:///{quote(host)}"
        case "zookeeper":
            host, path = host.partition("/")[0], schema or HIVE_NAMESPACE
        case "postgresql":
            path = schema or "airflow"
        case _:
            path = schema
    hosts = [each.strip() for each in host.split(",") if each.strip()]
    if not hosts:
        raise InvalidRequest(f"it has no host; name the servers, as in host1:{PORTS[backend]},host2:{PORTS[backend]}")
    port = connection.port or PORTS[backend]
    servers = ",".join(each if ":" in each else f"{each}:{port}" for each in hosts)
    return f"{backend}://{_login(connection)}{servers}" + (f"/{quote(path)}" if path else "")


def _login(connection: Any) -> str:
    user, password = (quote(part or "", safe="", errors="replace") for part in (connection.login, connection.password))
    return f"{user}:{password}@" if password else f"{user}@" if user else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else _digits(value)


def _digits(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes no number of thousands of digits
        return ""


def _lock_timeout_s(extra: dict[str, Any]) -> float | None:
    """What ``hive.lock.numretries`` and ``hive.lock.sleep.between.retries`` amount to: Hive waits so long at most."""
    retries, sleep = extra.get("numretries"), extra.get("sleep_between_retries")
    if retries is None and sleep is None:
        return None
    retries = NUMRETRIES if retries is None else retries
    sleep_s = seconds(_digits(SLEEP if sleep is None else sleep))
    if isinstance(retries, bool) or not _COUNT.fullmatch(_digits(retries)) or sleep_s is None:
        raise InvalidRequest(
            f"numretries={_digits(retries)!r:.80} and sleep_between_retries={_digits(sleep)!r:.80} must be a whole number and a time, as in 100, '60s'"
        )
    return int(retries) * sleep_s
