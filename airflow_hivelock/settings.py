"""The settings of a connection of type ``hivelock``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive import lock_store
from airflow_hivelock.locks.hive.catalog import address
from airflow_hivelock.locks.hive.lock_store import Sourced
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN, TRANSACTIONS, Setting, TxnSettings
from airflow_hivelock.locks.hive.site import Site
from airflow_hivelock.locks.invitations import INVITATION_S
from airflow_hivelock.locks.model import MAX_INVITATION_S
from airflow_hivelock.locks.plan import check_follows
from airflow_hivelock.locks.url import check, seconds, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_hivelock.locks.plan import Follows

_TO_AIRFLOW = (
    "installation",
    "concurrency",
    *lock_store.RETRIES,
    "locks",
    "hive_site",
    "invitation_s",
)
_OURS = {"backend", "metastore_uri", *_TO_AIRFLOW, *TRANSACTIONS}
"""Options of the extra for Airflow, and the parts at the start of a lock store's URL. All others are options of the
URL."""

MOST_INSTALLATION = 250


@dataclass(frozen=True)
class Settings:
    """The checked contents of a connection.

    :param url: the URL of the lock store, for :func:`airflow_hivelock.locks.connect`. It can contain a password.
    :param installation: the id of this Airflow among the Airflows on the lock store.
    :param metastore_uri: the metastore in which tasks look up partitions; empty: none.
    :param concurrency: False turns locking off, as ``hive.support.concurrency`` does.
    :param lock_timeout_s: how long a task waits for locks if it sets no time-out, in seconds; None: without a limit.
    :param locks: the table of commands that decides what SQL locks: see
        :func:`~airflow_hivelock.locks.plan.plan_statements`.
    :param site: the hive-site.xml that the connection names. It supplies the settings that the connection does not
        have.
    :param sources: each setting of the connection and of its hive-site.xml, by name.
    :param txn: Hive's settings for the lock types of its metastore. SQL needs them if ``locks`` is ``hive``.
    :param invitation_s: how long a task at its turn keeps its queue position while it gets a worker slot, in seconds;
        0: it keeps no position.
    """

    url: str = field(repr=False)
    installation: str
    metastore_uri: str = field(default="", repr=False)
    concurrency: bool = True
    lock_timeout_s: float | None = None
    locks: Follows = "stricter"
    site: Site | None = field(default=None, repr=False, compare=False)
    sources: Mapping[str, Sourced] = field(default_factory=dict, repr=False, compare=False)
    txn: TxnSettings = DEFAULT_TXN
    invitation_s: float = INVITATION_S

    @classmethod
    def of(cls, connection: Any) -> Settings:
        """Read *connection*.

        :raises InvalidRequest: one of its settings is invalid.
        """
        for what in ("host", "schema", "login"):
            if not (getattr(connection, what) or "").isprintable():
                raise InvalidRequest(f"its {what} contains a character that cannot be printed. Remove it")
        own: Any = connection.extra_dejson
        if not isinstance(own, dict):
            raise InvalidRequest('its extra is not a JSON object. Write one as in {"installation": "etl-prod"}')
        site, of_site = _of_site(own, connection)
        host, schema = (_given(getattr(connection, name), of_site.pop(name, None)) for name in ("host", "schema"))
        extra: dict[str, Any] = {name: each.value for name, each in of_site.items()} | own
        backend = extra.get("backend") or "zookeeper"
        options = {name: _text(value) for name, value in extra.items() if name not in _OURS and value not in (None, "")}
        url = lock_store.url_of(
            backend,
            host.value,
            schema.value,
            options,
            login=connection.login or "",
            password=connection.password or "",
            port=connection.port,
        )
        check(url)
        installation = extra.get("installation") or ("local" if backend == "memory" else "")
        if not isinstance(installation, str) or not installation.isprintable() or len(installation) > MOST_INSTALLATION:
            raise InvalidRequest(
                f"installation={installation!r:.80} is invalid. Use a text of at most {MOST_INSTALLATION} printable characters"
            )
        if not installation.strip():
            raise InvalidRequest(
                'it has no installation id. Name this Airflow in the extra, as in {"installation": "etl-prod"}. Each Airflow on '
                "one lock store needs its own id"
            )
        locks = extra.get("locks", "stricter")
        check_follows(locks)
        concurrency = extra.get("concurrency", True)
        if not isinstance(concurrency, bool):
            raise InvalidRequest(f"concurrency={concurrency!r} is invalid. Use true or false")
        metastore_uri = extra.get("metastore_uri") or ""
        if not isinstance(metastore_uri, str):
            raise InvalidRequest(f"metastore_uri={metastore_uri!r:.80} is not a URI. Write thrift://metastore:9083")
        if metastore_uri:
            address(metastore_uri)
        txn = [Setting(name, _text(value)) for name, value in extra.items() if name in TRANSACTIONS]
        sources = {"host": host, "schema": schema} | of_site
        sources |= {name: Sourced(name, _text(value), _CONNECTION) for name, value in own.items()}
        return cls(
            url,
            installation,
            metastore_uri,
            concurrency,
            lock_store.patience_s({name: each for name, each in sources.items() if extra.get(name) is not None}),
            locks,
            site,
            sources,
            DEFAULT_TXN.after(*txn) if txn else DEFAULT_TXN,
            _invitation_s(extra),
        )

    def sourced(self) -> Iterator[Sourced]:
        """Each of these settings, with its source."""
        found = {name: each.value for name, each in lock_store.of_url(self.url, "").items()}
        found |= {"metastore_uri": shown(self.metastore_uri)} if self.metastore_uri else {}
        found |= {name: self.sources[name].value for name in _TO_AIRFLOW if name in self.sources}
        found |= {"installation": self.installation, "concurrency": _text(self.concurrency), "locks": self.locks}
        found["invitation_s"] = f"{self.invitation_s:g}"
        for name, value in found.items():
            yield Sourced(name, value, self.sources[name].source if name in self.sources else "the default")
        yield from lock_store.unused(self.site) if self.site else ()

    @property
    def shown_url(self) -> str:
        """The lock store without its passwords."""
        return shown(self.url)


_CONNECTION = "the connection"


def _of_site(extra: dict[str, Any], connection: Any) -> tuple[Site | None, dict[str, Sourced]]:
    """Return the hive-site.xml that the connection names, and the fields of the connection that it supplies.

    The file's ``chroot`` belongs to its servers, so it is dropped if the connection has a host. Its ``auth`` is dropped
    if the connection has a login.
    """
    file = extra.get("hive_site")
    if file in (None, ""):
        return None, {}
    if not isinstance(file, str):
        raise InvalidRequest(f"hive_site={_digits(file)!r:.80} is not the path of a hive-site.xml")
    site = Site.read(file)
    named = extra.get("backend")
    sources = lock_store.of_site(site, named if isinstance(named, str) else "")
    for own, theirs in ((connection.host, "chroot"), (connection.login, "auth")):
        if own:
            sources.pop(theirs, None)
    return site, sources


def _given(own: str | None, of_site: Sourced | None) -> Sourced:
    """Return the connection's *own* value, or the value of its hive-site.xml if it has none."""
    return Sourced("", own, _CONNECTION) if own else of_site or Sourced("", "", "the default")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else _digits(value)


def _digits(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not convert a number of thousands of digits to text
        return ""


def _invitation_s(extra: dict[str, Any]) -> float:
    given = extra.get("invitation_s")
    if given in (None, ""):
        return INVITATION_S
    return seconds("invitation_s", _text(given), most_s=MAX_INVITATION_S, or_none=True)
