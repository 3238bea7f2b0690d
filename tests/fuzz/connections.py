"""A connection, a URL or a hive-site.xml with any contents is refused, or names its store. No password is repeated."""

from __future__ import annotations

import json
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from hypothesis import strategies as st

from airflow_hivelock.locks import HiveLockError, StoreUnavailable
from airflow_hivelock.locks.backends.database.location import open_store
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.hive import lock_store, properties
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.hive.site import Site
from airflow_hivelock.settings import Settings
from airflow_hivelock.spec import Owner
from tests.fuzz.target import ODD, ODD_TEXT, Target, damaged, encoded, loaded, text_of

SECRET = "n0t-t0-be-seen"


def url(data: bytes) -> None:
    """A URL is refused, or gives a store."""
    text = text_of(data)
    try:
        _connect(text)
    except HiveLockError as error:
        _keeps(SECRET, error)


def _keeps(secret: str, error: Exception) -> None:
    assert secret not in str(error), "a password is repeated"


def _connect(text: str) -> None:
    if text.partition(":")[0] in ("postgresql", "postgresql+psycopg", "mysql", "mariadb", "sqlite"):
        open_store(text)[0].close()
        return
    if text.startswith("hiveserver2:"):  # asks as soon as it is made
        with mock.patch(
            "airflow_hivelock.locks.backends.hiveserver2.HiveServer2Backend.settings",
            lambda self, wanted: dict.fromkeys(wanted),
        ):
            connect(text)
        return
    with (
        mock.patch("kazoo.client.KazooClient.start_async", _refuse),
        mock.patch("kazoo.client.KazooClient.stop"),
        mock.patch("kazoo.client.KazooClient.close"),
        mock.patch("airflow_hivelock.locks.hive.thrift.Metastore.client", _be_silent),
    ):
        connect(text)


def _refuse(self: Any) -> None:
    raise OSError("nobody answers")


def site(data: bytes) -> None:
    """A hive-site.xml is refused, or names a lock store; passwords in it are not repeated."""
    try:
        found = Site.parse(data)
    except HiveLockError as error:
        _keeps(SECRET, error)
        return
    with suppress(HiveLockError):
        for each in lock_store.unused(found):
            assert SECRET not in str(each), "a password is shown"
    for backend in ("", "zookeeper", "metastore", "postgresql"):
        try:
            said = lock_store.of_site(found, backend)
        except HiveLockError as error:
            _keeps(SECRET, error)
            continue
        if not backend:
            with suppress(HiveLockError):
                _connect(lock_store.url(said))
        if "metastore_uri" in said:
            with suppress(HiveLockError):
                connect_catalog(said["metastore_uri"].value)
        waits_s = lock_store.patience_s(said)
        assert waits_s is None or 0 <= waits_s < float("inf")


def connection(data: bytes) -> None:
    """A connection is refused, or its settings are such as the rest can work with."""
    given = loaded(data)
    if not isinstance(given, dict):
        return
    extra = given.get("extra")
    text = {name: value if isinstance(value := given.get(name), str) else None for name in ("host", "schema", "login")}
    port = given.get("port")
    said = SimpleNamespace(
        **text,
        password=SECRET if text["login"] else None,
        port=port if isinstance(port, int) else None,
        extra_dejson=extra if isinstance(extra, dict) else {},
    )
    try:
        settings = Settings.of(said)
    except HiveLockError as error:
        _keeps(SECRET, error)
        return
    assert SECRET not in settings.shown_url, "a password is shown"
    assert urlsplit(settings.url).scheme in lock_store.KINDS
    owner = Owner(settings.installation, "dag", "run", "task", 3)
    assert Owner.parse(str(owner)) == owner, "a lease would not be known again"
    assert settings.lock_timeout_s is None or 0 <= settings.lock_timeout_s < float("inf")
    with suppress(HiveLockError):
        if settings.metastore_uri:
            connect_catalog(settings.metastore_uri)
    with suppress(HiveLockError):
        _connect(settings.url)


def _be_silent(self: Any) -> None:
    raise StoreUnavailable("nobody answers")


_SCHEMES = st.sampled_from([*lock_store.KINDS, "mariadb", "http", ""])
_HOSTS = st.sampled_from(
    [
        "zk:2181",
        "zk1:1,zk2:2",
        "[::1]:5",
        "[",
        "a:b",
        ":5",
        "host:99999999",
        f"u:{SECRET}@h",
        "@",
        ",,",
        "",
        "h℀",
        "x" * 300 + ":1",
        "a b",
    ]
)
_QUERY = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "root",
                "timeout_s",
                "patience_s",
                "expiry",
                "max_lease_s",
                "prefix",
                "schema",
                "auth",
                "ssl",
                "ca",
                "recheck_s",
                "answer_s",
                "x",
            ]
        ),
        st.sampled_from(
            ["", "/x", "/../x", "nan", "inf", "-1", "1e400", "true", "frees", "a;b", "%00", "9" * 5_000, "KERBEROS"]
        )
        | ODD_TEXT,
    ),
    max_size=3,
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))
_URLS = st.builds(
    lambda scheme, host, path, query: f"{scheme}://{host}{path}?{query}",
    _SCHEMES,
    _HOSTS | ODD_TEXT,
    st.sampled_from(["", "/", "/hive", "/../etc", "//x", "/a b", "/%00", "/%2e%2e/x", "/zookeeper"]) | ODD_TEXT,
    _QUERY,
)
_GOOD = {
    "host": "zk1:2181,zk2",
    "schema": "hive",
    "login": "",
    "port": 2181,
    "extra": {
        "installation": "prod",
        "backend": "zookeeper",
        "timeout_s": 5,
        "numretries": 10,
        "sleep_between_retries": "60s",
        "concurrency": True,
        "metastore_uri": "thrift://m:9083",
        "locks": "hive",
    },
}


@st.composite
def _connections(draw: st.DrawFn) -> bytes:
    given: dict[str, Any] = json.loads(json.dumps(_GOOD))
    given["extra"]["backend"] = draw(st.sampled_from([*lock_store.KINDS]))
    given["host"] = draw(_HOSTS | ODD_TEXT)
    given["login"] = draw(st.sampled_from(["", "me"]))
    return draw(damaged(given))


_PROPERTIES = st.lists(
    st.tuples(
        st.sampled_from([*properties.TAKEN, *properties.ELSEWHERE, "hive.zookeeper.ssl.keystore.password", "x"]),
        st.sampled_from(
            [
                *(
                    "true",
                    "false",
                    "60s",
                    "1200000",
                    "100",
                    "-1",
                    "9" * 30,
                    "${x}",
                    "${env:X}",
                    "${hive.zookeeper.quorum}",
                ),
                *("zk1,zk2:2181/x", "thrift://a:1,thrift://b", "hive/_HOST@R", "a.DbTxnManager", "a.DummyTxnManager"),
                *("kerberos", "thrift://[", ",,", "zk:99999999", "/", "?x=1", SECRET[:0]),
            ]
        )
        | ODD_TEXT,
        st.sampled_from(["", "<final>true</final>", "<final/>", "<value/>", "<name>x</name>", "<a><b>"]),
    ),
    max_size=6,
)
_SITES = st.builds(
    lambda head, pairs, tail: (
        head
        + "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value>{more}</property>"
            for name, value, more in pairs
        )
        + f"<property><name>hive.zookeeper.ssl.keystore.password</name><value>{SECRET}</value></property>{tail}"
    ),
    st.sampled_from(
        [
            "<configuration>",
            '<?xml version="1.0"?><configuration>',
            "<c>",
            "",
            "<!DOCTYPE c [<!ENTITY e 'x'>]><configuration>",
        ]
    ),
    _PROPERTIES,
    st.sampled_from(["</configuration>", "</configuration>", "</configuration>", "", "<configuration>" * 999, "&e;"]),
)

TARGETS = (
    Target("url", url, _URLS.map(encoded)),
    Target("site", site, _SITES.map(encoded) | st.binary(max_size=40)),
    Target(
        "connection",
        connection,
        _connections()
        | st.dictionaries(ODD_TEXT, ODD, max_size=2).map(
            lambda extra: json.dumps({"host": "h", "extra": extra}).encode()
        ),
    ),
)
