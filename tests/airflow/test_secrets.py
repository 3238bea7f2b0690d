"""A password in a connection appears in no log, XCom, trigger, error or shown text, and not in the store."""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from airflow.sdk import DAG, BaseOperator
from kazoo.client import KazooClient

from airflow_hivelock import (
    HiveForceUnlockOperator,
    HiveLockHook,
    HiveLockMixin,
    HiveLockOperator,
    HiveLockSensor,
    HiveUnlockOperator,
    hooks,
    release_locks,
)
from airflow_hivelock.locks import HiveLockError, LockManager, connect
from airflow_hivelock.locks.backends.hiveserver2 import HiveServer2Backend
from airflow_hivelock.operators import spark_submit
from airflow_hivelock.spark import URL
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.triggers.lock import HiveLockTrigger
from tests.airflow.conftest import HOME
from tests.airflow.tasks import DAY
from tests.airflow.triggerer import starts_in_triggerer
from tests.support.servers import HiveServer2, SecuredZooKeeper
from tests.support.servers.certificates import Authority
from tests.support.servers.directory import Directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.airflow.conftest import Lines, Run
    from tests.support.servers import PostgresServer, ZooKeeperServer

TRACE = "".join(("Zq7", "hush"))  # Airflow keeps this very file
PLANTED = f"p/{TRACE}@x:%"
"""Percent-encoded, and in whatever other form, *TRACE* stands in it."""
DELAYS = "dw.delays/dt=2013-01-15"


@dataclass(frozen=True)
class Planted:
    """A connection with the password in it, and everything that the store keeps, as text."""

    fields: dict[str, Any]
    kept: Callable[[], str]


def _nodes(server: ZooKeeperServer) -> str:
    def everything(client: KazooClient, path: str) -> Iterator[str]:
        yield f"{path} {client.get(path)[0]!r} {client.get_acls(path)[0]}"
        for name in client.get_children(path):
            yield from everything(client, f"{path.rstrip('/')}/{name}")

    client = KazooClient(server.hosts, auth_data=[("digest", "somebody:who looks")])
    client.start()
    try:
        return "\n".join(everything(client, "/planted"))
    finally:
        client.stop()
        client.close()


@pytest.fixture
def in_zookeeper(zookeeper: ZooKeeperServer) -> Planted:
    extra = {"installation": "here", "chroot": "/planted", "key_password": PLANTED}
    return Planted({"host": zookeeper.hosts, "login": "airflow", "extra": extra}, lambda: _nodes(zookeeper))


@pytest.fixture
def in_secured_zookeeper(tmp_path: Path) -> Iterator[Planted]:
    """By SASL and TLS, with a password on the key."""
    authority = Authority(tmp_path / "certificates")
    with SecuredZooKeeper(tmp_path, authority=authority, logins={"airflow": PLANTED}) as server:
        cert = authority.issue("airflow", password=PLANTED)
        tls = {"ssl": True, "ca": str(authority.ca), "cert": str(cert), "key_password": PLANTED}
        extra = {"installation": "here", "chroot": "/planted", "auth": "SASL", **tls}
        yield Planted({"host": server.secure, "login": "airflow", "extra": extra}, lambda: _nodes(server))


@pytest.fixture
def in_postgresql(postgres: PostgresServer) -> Planted:
    def kept() -> str:
        with psycopg.connect(postgres.url) as session:
            tables = session.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'planted'")
            rows = [session.execute(f'SELECT * FROM planted."{name}"').fetchall() for (name,) in tables.fetchall()]
        return repr(rows)

    extra = {"installation": "here", "backend": "postgresql", "schema": "planted", "sslpassword": PLANTED}
    fields = {"host": f"127.0.0.1:{postgres.port}", "login": "postgres", "schema": "postgres", "extra": extra}
    return Planted(fields, kept)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Any]], HiveLockHook]]:
    """Define the connection ``planted``, and give its hook."""
    monkeypatch.setattr(hooks, "_managers", {})

    def define(fields: dict[str, Any]) -> HiveLockHook:
        given = {"conn_type": "hivelock", "password": PLANTED, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_PLANTED", json.dumps(given))
        return HiveLockHook("planted")

    yield define
    for manager in hooks._managers.values():
        manager.close()


class Fails(BaseOperator):
    """Fails at the given step."""

    def __init__(self, *, fails: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fails = fails

    def execute(self, context: Any) -> None:
        if self.fails:
            raise RuntimeError("as it was told to")


class Work(HiveLockMixin, Fails):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(hivelock_conn_id="planted", **kwargs)


def chain(waiting: str) -> DAG:
    conn: dict[str, Any] = {"hivelock_conn_id": "planted"}
    with DAG(f"planted_{waiting}", schedule=None, start_date=DAY) as dag:
        free = HiveLockSensor(task_id="free", reads=[DELAYS], deferrable=waiting == "defer", **conn)
        lock = HiveLockOperator(task_id="lock", writes=[DELAYS], waiting=waiting, **conn)
        work = Work(task_id="work", lease=lock.output)
        unlock = HiveUnlockOperator(task_id="unlock", lease=lock.output, **conn)
        failing = Work(
            task_id="failing", writes=[DELAYS], fails=True, on_failure_callback=release_locks, trigger_rule="all_done"
        )
        stays = HiveLockOperator(task_id="stays", writes=[DELAYS], waiting="poke", trigger_rule="all_done", **conn)
        force = HiveForceUnlockOperator(
            task_id="force", leases=["{{ ti.xcom_pull('stays')['id'] }}"], stale=False, reason="a test", **conn
        )
        lock >> work >> unlock >> free >> failing >> stays >> force
    return dag


@pytest.mark.integration
@pytest.mark.parametrize(
    "store", ["in_zookeeper", "in_postgresql", pytest.param("in_secured_zookeeper", marks=pytest.mark.security)]
)
def test_a_password_is_nowhere_to_be_found(
    store: str,
    connection: Callable[[dict[str, Any]], HiveLockHook],
    request: pytest.FixtureRequest,
    run: Run,
    lines: Lines,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    planted: Planted = request.getfixturevalue(store)
    hook = connection(planted.fields)
    assert TRACE in hook.url
    manager = hook.manager()
    for waiting in ("poke", "defer"):
        held = manager.acquire(owner="somebody", writes=[DELAYS])
        releasing = _when_it_waits(manager, lines, held)
        ran = run(chain(waiting), logical_date=DAY)
        releasing.join()
        assert ran.tasks == {**dict.fromkeys(ran.tasks, "success"), "failing": "failed"}
    assert "here/planted_defer" in planted.kept()
    _is_nowhere(hook, planted, caplog.text + lines(), capfd)


@pytest.mark.security
def test_a_password_for_hiveserver2_is_nowhere_to_be_found(
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    connection: Callable[[dict[str, Any]], HiveLockHook],
    run: Run,
    lines: Lines,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is only looked at."""
    caplog.set_level(logging.DEBUG)
    with Directory(tmp_path, user="ann", password=PLANTED) as directory:
        config = {
            "hive.server2.authentication.ldap.url": directory.url,
            "hive.server2.authentication.ldap.userDNPattern": directory.pattern,
        }
        with HiveServer2(tmp_path, zookeeper=zookeeper, auth="LDAP", config=config) as server:
            extra = {"installation": "here", "backend": "hiveserver2", "auth": "LDAP", "recheck_s": 1}
            fields = {"host": f"127.0.0.1:{server.port}", "login": "ann", "extra": extra}
            hook = connection(fields)
            backend = hook.manager().backend
            assert isinstance(backend, HiveServer2Backend)
            backend._ask("CREATE TABLE flights (a int)")  # Hive lists no locks on what is not there
            for waiting in ("poke", "defer"):
                with DAG(f"planted_looks_{waiting}", schedule=None, start_date=DAY) as dag:
                    HiveLockSensor(
                        task_id="free",
                        writes=["default.flights"],
                        deferrable=waiting == "defer",
                        poke_interval=1,
                        hivelock_conn_id="planted",
                    )
                with connect(zookeeper.url) as manager:
                    held = manager.acquire(owner="somebody", writes=["default.flights"])
                    releasing = _when_it_waits(manager, lines, held)
                    assert run(dag, logical_date=DAY).tasks == {"free": "success"}
                    releasing.join()
            _is_nowhere(hook, Planted(fields, lambda: ""), caplog.text + lines(), capfd)


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "127.0.0.1:1", "login": "airflow", "extra": {"timeout_s": 1}},
        {"host": "127.0.0.1:1", "login": "airflow", "extra": {"tiemout_s": 1, "key_password": PLANTED}},
        {"host": "127.0.0.1:1", "login": "airflow", "extra": {"acl": f"digest:ops:{PLANTED}"}},
        {"host": "127.0.0.1:1", "login": "airflow", "extra": {"timeout_s": "x"}},
        {"host": "127.0.0.1:port", "login": "airflow"},
        {"host": "[::1", "login": "airflow"},
        {"host": "zk℀", "login": "airflow"},
        {"host": "127.0.0.1:1"},
        {"host": "127.0.0.1:1", "login": "airflow", "extra": {"auth": "KERBEROS"}},
        {"host": "127.0.0.1:1", "schema": "x", "login": "ann", "extra": {"backend": "postgresql", "timeout_s": 2}},
        {"host": "127.0.0.1:1", "schema": "x", "login": "ann", "extra": {"backend": "postgresql", "expiry": "x"}},
        {
            "host": "127.0.0.1:1",
            "schema": "x",
            "login": "ann",
            "extra": {"backend": "postgresql", "password": PLANTED, "expiry": "x"},
        },
        {"host": "127.0.0.1:1", "schema": "x", "login": "ann", "extra": {"backend": "postgresql", "passwd": PLANTED}},
        {"host": "127.0.0.1:port", "schema": "x", "login": "ann", "extra": {"backend": "postgresql"}},
        {"host": "127.0.0.1:1", "login": "ann", "extra": {"backend": "hiveserver2", "auth": "LDAP"}},
        {"host": "127.0.0.1:1", "login": "ann", "extra": {"backend": "hiveserver2"}},
        {"host": "127.0.0.1:port", "login": "ann", "extra": {"backend": "hiveserver2", "auth": "LDAP"}},
        {"host": "127.0.0.1:1", "extra": {"backend": "metastore"}},
        {"host": "/nowhere/leases.db", "extra": {"backend": "sqlite"}},
        {"extra": {"backend": "memory"}},
        {"host": "127.0.0.1:1", "login": "ann", "extra": {"backend": "etcd"}},
    ],
    ids=repr,
)
def test_no_error_repeats_a_password(
    fields: dict[str, Any], connection: Callable[[dict[str, Any]], HiveLockHook], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hook = connection({**fields, "extra": {"installation": "here", **fields.get("extra", {})}})
    with pytest.raises(HiveLockError) as told:
        hook.manager()
    shown = "".join(traceback.format_exception(told.value)) + repr(told.value)
    assert TRACE not in shown
    assert TRACE not in caplog.text
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "uri",
    ["thrift://ann:{}@hms", "thrift://ann:{}@hms,hms2", "thrift://hms?password={}", "thrift://hms:{}", "thrift://[{}"],
)
def test_no_error_repeats_the_address_of_a_metastore_with_a_password(
    uri: str, connection: Callable[[dict[str, Any]], HiveLockHook]
) -> None:
    given = uri.format(TRACE)
    hook = connection({"host": "zk", "login": "ann", "extra": {"installation": "here", "metastore_uri": given}})
    with pytest.raises(HiveLockError) as told:
        hook.catalog()
    shown = traceback.format_exception(told.value)
    try:
        shown.append(repr(hook.settings))
    except HiveLockError as refused:  # what is no URL at all is refused with the connection
        shown += traceback.format_exception(refused)
    assert TRACE not in "".join(shown)


@starts_in_triggerer
def test_triggers_carry_a_connections_name_only(connection: Callable[[dict[str, Any]], HiveLockHook]) -> None:
    connection({"host": "127.0.0.1:1", "login": "airflow", "extra": {"installation": "here"}})
    lock = HiveLockOperator(task_id="lock", writes=[DELAYS], hivelock_conn_id="planted")
    assert lock.start_trigger_args is not None
    given = lock.start_trigger_args.trigger_kwargs
    shown = repr([given, HiveLockKeeper("planted").serialize(), lock.__dict__])
    assert "planted" in shown
    assert lock.start_trigger_args.trigger_cls.endswith(HiveLockTrigger.__name__)
    assert TRACE not in shown


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("zookeeper://zk/hive?auth=KERBEROS", True),
        (f"zookeeper://airflow:{TRACE}@zk/hive", False),
        (f"zookeeper://zk/hive?ssl=true&cert=c&key_password={TRACE}", False),
        (f"postgresql://ann@db/airflow?password={TRACE}", False),
        (f"postgresql://ann@db/airflow?sslpassword={TRACE}", False),
    ],
)
def test_sparks_settings_which_its_page_shows_hold_no_password(
    url: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, url)
    hook = type("Hook", (), {"_is_yarn": True, "_is_kubernetes": False})()
    settings = spark_submit._driver_environment(hook)
    assert list(settings.values()) == ([url] if told else [])


def _is_nowhere(hook: HiveLockHook, planted: Planted, logs: str, capfd: pytest.CaptureFixture[str]) -> None:
    captured = capfd.readouterr()
    shown = [hook.settings, hook.settings.shown_url, hook, hook.__dict__, hook.test_connection()]
    found = {
        "logs": logs,
        "standard output": captured.out + captured.err,
        "Airflow's files and database": _files(HOME),
        "the store": planted.kept(),
        "what is shown": repr(shown),
        "managers": _insides(hook.manager()),
    }
    assert "somebody" in logs
    assert "planted_" in found["Airflow's files and database"]
    for where, text in found.items():
        assert TRACE not in text, f"{where}: …{text[text.find(TRACE) - 200 : text.find(TRACE) + 80]}"


def _when_it_waits(manager: LockManager, lines: Lines, held: Any) -> threading.Thread:
    """Release *held* after the run has logged its blocker again."""
    before = lines().count("In the way: somebody")

    def watch() -> None:
        deadline = time.monotonic() + 120
        while lines().count("In the way: somebody") == before and time.monotonic() < deadline:
            time.sleep(0.05)
        manager.release(held)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def _files(directory: Path) -> str:
    return "\n".join(path.read_bytes().decode(errors="replace") for path in directory.rglob("*") if path.is_file())


def _insides(manager: LockManager) -> str:
    """What a debugger or a careless log line shows about a manager."""
    backend: Any = manager.backend
    parts = [manager, backend, *vars(backend).values()]
    client = getattr(backend, "client", None)
    return repr([*parts, *(vars(client).values() if client else ())])
