"""From a connection to a lock manager, and what this provider reports to Airflow."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import jsonschema  # type: ignore[import-untyped]
import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS
from airflow.providers_manager import ProvidersManager
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hivelock import HiveLockHook, hooks
from airflow_hivelock.get_provider_info import get_provider_info
from airflow_hivelock.locks import InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.spec import Owner

if TYPE_CHECKING:
    from pathlib import Path

ID = {"installation": "prod"}
ZK = {"conn_type": "hivelock", "host": "zk1:2181,zk2", "extra": {"installation": "prod"}}


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Define a connection and give its hook."""

    def define(**fields: Any) -> HiveLockHook:
        monkeypatch.setenv("AIRFLOW_CONN_LOCKS", json.dumps({**ZK, **fields}))
        return HiveLockHook("locks")

    return define


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "zookeeper://zk1:2181,zk2:2181/hive_zookeeper_namespace"),
        ({"port": 3181}, "zookeeper://zk1:2181,zk2:3181/hive_zookeeper_namespace"),
        ({"host": "[::1],[::2]:2182", "port": 3181}, "zookeeper://[::1]:3181,[::2]:2182/hive_zookeeper_namespace"),
        ({"schema": "/hive/locks"}, "zookeeper://zk1:2181,zk2:2181/hive/locks"),
        (
            {"extra": {"installation": "prod", "root": "/mine", "timeout_s": "20"}},
            "zookeeper://zk1:2181,zk2:2181/hive_zookeeper_namespace?root=%2Fmine&timeout_s=20",
        ),
        (
            {"host": "zk1,zk2:2182/warehouse", "login": "ann", "password": "p@ss/:", "extra": {**ID, "auth": "SASL"}},
            "zookeeper://ann:p%40ss%2F%3A@zk1:2181,zk2:2182/hive_zookeeper_namespace?auth=SASL&chroot=warehouse",
        ),
        ({"host": "", "extra": {"backend": "memory"}}, "memory://"),
        ({"host": "other", "extra": {"backend": "memory"}}, "memory://other"),
        (
            {
                "host": "db",
                "schema": "locks",
                "login": "ann",
                "password": "p@ss/:",
                "extra": {"backend": "postgresql", **ID, "expiry": "frees"},
            },
            "postgresql://ann:p%40ss%2F%3A@db:5432/locks?expiry=frees",
        ),
        (
            {"host": "db", "login": "ann", "schema": "locks", "extra": {"backend": "mysql", **ID, "ssl_ca": "/ca.pem"}},
            "mysql://ann@db:3306/locks?ssl_ca=%2Fca.pem",
        ),
        ({"host": "/var/lib/leases.db", "extra": {"backend": "sqlite", **ID}}, "sqlite:////var/lib/leases.db"),
        (
            {"host": "hms1,hms2", "extra": {"backend": "metastore", **ID, "ssl": True}},
            "metastore://hms1:9083,hms2:9083?ssl=true",
        ),
        (
            {"host": "hs2", "login": "ann", "schema": "dw", "extra": {"backend": "hiveserver2", **ID, "auth": "LDAP"}},
            "hiveserver2://ann@hs2:10000/dw?auth=LDAP",
        ),
    ],
)
def test_a_connection_says_where_the_locks_are(fields: dict[str, Any], url: str, connection: Any) -> None:
    assert connection(**fields).url == url


def test_a_file_is_shown_as_the_host_that_the_connection_names(connection: Any) -> None:
    settings = connection(host="/var/lib/my leases.db", extra={"backend": "sqlite", **ID}).settings
    shown = {each.name: (each.value, each.source) for each in settings.sourced()}
    assert shown["host"] == ("/var/lib/my leases.db", "the connection")
    assert "schema" not in shown


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": None}, "no host"),
        ({"login": "ann", "extra": {**ID, "backend": "metastore"}}, "metastore takes none"),
        ({"password": "hush", "extra": {**ID, "backend": "metastore"}}, "metastore takes none"),
        ({"extra": {}}, "no installation id"),
        pytest.param(
            *({"extra": '["prod"]'}, "not a JSON object"),
            marks=pytest.mark.skipif(not AIRFLOW_V_3_2_PLUS, reason="Airflow 3.1 finds no such connection"),
        ),
        ({"extra": {"installation": "prod", "backend": "etcd"}}, "'etcd' is unknown"),
        ({"extra": {"instalation": "prod"}}, "no installation id"),
        ({"extra": {"installation": 5}}, "installation=5 is invalid. Use a text"),
        ({"host": "zookeeper://zk1:2181"}, "its host contains '://'"),
        ({"host": "thrift://hms:9083", "extra": {**ID, "backend": "metastore"}}, "its host contains '://'"),
        ({"host": "sqlite:////var/leases.db", "extra": {**ID, "backend": "sqlite"}}, "its host contains '://'"),
        ({"host": "", "extra": {**ID, "backend": "sqlite"}}, "host='' is not the whole path"),
        ({"host": "leases.db", "extra": {**ID, "backend": "sqlite"}}, "host='leases.db' is not the whole path"),
        ({"extra": {**ID, "backend": "postgresql"}}, "it names no database"),
        ({"extra": {**ID, "backend": "mysql"}}, "it names no database"),
        ({"extra": {**ID, "metastore_uri": "hms:9083"}}, "'hms:9083' is not the address of a metastore"),
        ({"extra": {**ID, "metastore_uri": "thift://hms"}}, "'thift://hms' is not the address of a metastore"),
        ({"extra": {**ID, "metastore_uri": "thrift://hms?tls=true"}}, "unknown option tls"),
    ],
)
def test_a_connection_that_cannot_be_meant_is_named(fields: dict[str, Any], said: str, connection: Any) -> None:
    hook = connection(**fields)
    with pytest.raises(InvalidRequest, match=f"connection 'locks': .*{said}"):
        assert hook.url
    with pytest.raises(InvalidRequest, match=f"connection 'locks': .*{said}"):
        asyncio.run(hook.load())


SITE = """<configuration>
<property><name>hive.zookeeper.quorum</name><value>zk8,zk9</value></property>
<property><name>hive.zookeeper.namespace</name><value>hive_locks</value></property>
<property><name>hive.zookeeper.ssl.client.enable</name><value>true</value></property>
<property><name>hive.lock.numretries</name><value>3</value></property>
<property><name>hive.metastore.uris</name><value>thrift://hms:9083</value></property>
</configuration>"""


@pytest.mark.parametrize(
    ("fields", "extra", "url"),
    [
        ({"host": ""}, {}, "zookeeper://zk8:2181,zk9:2181/hive_locks?ssl=true"),
        ({"host": "", "schema": "mine"}, {"ca": "/ca.pem"}, "zookeeper://zk8:2181,zk9:2181/mine?ssl=true&ca=%2Fca.pem"),
        ({"host": "zk1"}, {"ssl": False}, "zookeeper://zk1:2181/hive_locks?ssl=false"),
        ({"host": ""}, {"backend": "metastore"}, "metastore://hms:9083"),
        ({"host": "db", "schema": "locks"}, {"backend": "postgresql"}, "postgresql://db:5432/locks"),
        ({"host": ""}, {"backend": "memory"}, "memory://"),
    ],
)
def test_a_hive_site_says_what_the_connection_does_not(
    fields: dict[str, Any], extra: dict[str, Any], url: str, connection: Any, tmp_path: Path
) -> None:
    file = tmp_path / "hive-site.xml"
    file.write_text(SITE)
    settings = connection(**fields, extra={**ID, "hive_site": str(file), **extra}).settings
    assert settings.url == url
    assert settings.metastore_uri == "thrift://hms:9083"
    assert settings.lock_timeout_s == 180.0
    said = {each.name: each.source for each in settings.sourced()}
    assert (
        said["host"] == "the connection"
        if fields["host"]
        else said.get("host", "").endswith((f"{file}:2", f"{file}:6", ""))
    )
    assert said["numretries"] == f"hive.lock.numretries, {file}:5"
    assert said["installation"] == "the connection"


def test_what_the_connection_says_of_time_and_of_the_metastore_wins(connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "hive-site.xml"
    file.write_text(SITE)
    extra = {**ID, "hive_site": str(file), "numretries": 1, "sleep_between_retries": "5s", "metastore_uri": ""}
    settings = connection(host="", extra=extra).settings
    assert (settings.lock_timeout_s, settings.metastore_uri) == (5.0, "")


def test_a_hive_that_locks_nothing_is_warned_of_once(
    connection: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "hive-site.xml"
    file.write_text(SITE)
    fields = {"host": "loud", "extra": {**ID, "backend": "memory", "hive_site": str(file)}}
    for _ in range(2):
        connection(**fields).manager()
    said = [record for record in caplog.records if "Hive takes no locks, and waits for none" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING"]


def test_a_hive_site_that_is_not_there_is_named(connection: Any) -> None:
    for file, said in (("/none/hive-site.xml", "cannot be read"), (5, "is not the path of a hive-site.xml")):
        with pytest.raises(InvalidRequest, match=f"connection 'locks': hive_site=.*{said}"):
            assert connection(host="", extra={**ID, "hive_site": file}).url


def test_an_option_that_the_lock_store_does_not_have_is_named(connection: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"connection 'locks': .*unknown option tiemout_s\. Use one of"):
        connection(extra={**ID, "tiemout_s": 1}).manager()


def test_a_password_is_not_shown(connection: Any) -> None:
    fields = {"host": "127.0.0.1:1", "schema": "locks", "login": "ann", "password": "hush-hush"}
    hook = connection(**fields, extra={**ID, "backend": "postgresql", "timeout_s": 2})
    assert "hush-hush" in hook.url
    assert hook.settings.shown_url == "postgresql://ann@127.0.0.1:1/locks?timeout_s=2"
    ok, said = hook.test_connection()
    assert not ok
    assert "hush" not in said


def test_a_connection_that_does_not_exist_is_named() -> None:
    hook = HiveLockHook("nowhere")
    with pytest.raises(InvalidRequest, match="connection 'nowhere' does not exist"):
        assert hook.url
    with pytest.raises(InvalidRequest, match="connection 'nowhere' does not exist"):
        asyncio.run(hook.load())


def test_servers_that_do_not_answer_are_named_with_their_connection(connection: Any) -> None:
    hook = connection(host="127.0.0.1:1", extra={"installation": "prod", "timeout_s": "1"})
    with pytest.raises(StoreUnavailable, match=r"connection 'locks': .*127\.0\.0\.1:1"):
        hook.manager()
    ok, said = hook.test_connection()
    assert not ok
    assert "127.0.0.1:1" in said


def test_all_of_a_process_share_one_manager_and_a_fork_gets_its_own(connection: Any) -> None:
    memory = {"backend": "memory"}
    manager = connection(extra=memory, host="shared").manager()
    assert connection(extra=memory, host="shared").get_conn() is manager
    assert connection(extra=memory, host="elsewhere").manager() is not manager
    assert hooks._managers
    child = os.fork()
    if child == 0:
        os._exit(len(hooks._managers))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_connection_can_be_tested(connection: Any) -> None:
    ok, said = connection(host="", extra={"backend": "memory", "installation": "prod"}).test_connection()
    assert ok
    assert "'prod'" in said


def test_forms_that_are_tested_leave_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    before, closed = dict(hooks._managers), Mock()
    monkeypatch.setattr(MemoryBackend, "close", closed)
    for number in range(3):  # Airflow gives each form a new id
        form = {**ZK, "host": f"form-{number}", "extra": {**ID, "backend": "memory"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_FORM_{number}", json.dumps(form))
        assert HiveLockHook(f"form_{number}").test_connection()[0]
    assert closed.call_count == 3
    assert hooks._managers == before
    assert not [name for name in hooks._current if name.startswith("form_")]


def test_a_metastore_is_asked_where_the_connection_names_one(connection: Any) -> None:
    assert connection().catalog() is None
    named = connection(extra={"installation": "prod", "metastore_uri": "thrift://hive:9083"})
    assert named.catalog() is not None


def test_what_airflow_is_told_fits_its_schema() -> None:
    schema = json.loads((importlib.resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


@pytest.mark.filterwarnings("ignore")
def test_airflow_knows_the_provider_and_its_connection_type() -> None:
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    assert manager.providers["airflow-hivelock"].version == get_provider_info()["versions"][0]
    hook = manager.hooks["hivelock"]
    assert hook is not None
    assert hook.hook_name == "Hive locks"
    if not AIRFLOW_V_3_2_PLUS:
        pytest.importorskip(
            "flask_appbuilder", reason="Airflow 3.1 has no fields of its own for a connection without it"
        )
    assert "installation" in "".join(manager.connection_form_widgets)


parts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)


@given(parts, parts, parts, parts, st.integers(-1, 10_000))
@example("100%", "a/b", "manual__2013-01-15T00:00:00+00:00", "%2F", 3)
def test_an_owner_is_read_back(installation: str, dag: str, run: str, task: str, map_index: int) -> None:
    owner = Owner(installation, dag, run, task, map_index)
    assert Owner.parse(str(owner)) == owner
    assert str(owner).count("/") == 4
    assert Owner.parse(f"{owner}/days") == replace(owner, hold="days")


@pytest.mark.parametrize(
    "text",
    [
        *("", "me", "cli:ann:1234", "flights/2013-01-01", "a/b/c/d/e", "a/b/c/d/1/2/3"),
        *(f"a/b/c/d/{2**31}", "a/b/c/d/-2", "a/b%00/c/d/-1", "a/b/c%0A/d/-1", "a/b/c/d\n/-1"),
    ],
)
def test_an_owner_that_is_no_task_is_none(text: str) -> None:
    assert Owner.parse(text) is None
