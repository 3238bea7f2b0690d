"""The SQL that a task runs declares its locks; and the switch that turns locking off."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.sdk import BaseOperator
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent

from airflow_hivelock import (
    HiveLockedSparkSubmitOperator,
    HiveLockHook,
    HiveLockMixin,
    HiveLockOperator,
    HiveLockSensor,
    HiveUnlockOperator,
)
from airflow_hivelock.locks import InvalidRequest, LockManager, LockObject, rules
from airflow_hivelock.locks.hive.settings import DEFAULT_TXN
from airflow_hivelock.locks.model import LockType
from airflow_hivelock.locks.plan import (
    plan_statements,
    statement,  # noqa: F401 - or a trigger's deadline would hold its import
)
from airflow_hivelock.spec import OFF, LockSpec, Owner
from tests.airflow.conftest import HOME
from tests.airflow.tasks import DAY
from tests.airflow.tasks import dag as dag_named
from tests.airflow.triggerer import Triggerer, starts_in_triggerer
from tests.unit.test_types import Catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.airflow.conftest import Lines, Run

dag = partial(dag_named, "sql")

SQL = "INSERT OVERWRITE TABLE dw.delays PARTITION (dt='{{ ds }}') SELECT * FROM dw.planes"
LOCKS = ["dw SHARED", "dw.delays SHARED", "dw.delays/dt=2013-01-15 EXCLUSIVE", "dw.planes SHARED"]
GIVEN: dict[str, Any] = {"lock_sql": SQL, "unpartitioned": ["dw.planes"]}


class Locked(HiveLockMixin, SparkSqlOperator):
    """Runs no Spark; it notes the locks."""


class Work(BaseOperator):
    def __init__(self, *, manager: LockManager, seen: list[list[str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.manager, self.seen = manager, seen

    def execute(self, context: Any) -> None:
        self.seen.append([f"{holder.object} {holder.mode.value}" for holder in self.manager.show()])


class LockedWork(HiveLockMixin, Work):
    pass


class OfHive(Work):
    template_fields: Sequence[str] = ("hql", "schema")

    def __init__(self, *, hql: str, schema: str = "default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hql, self.schema = hql, schema


class LockedHive(HiveLockMixin, OfHive):
    pass


def of_connection(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    connection = {"conn_type": "hivelock", "extra": {"backend": "memory", "installation": "here", **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_HIVELOCK_DEFAULT", json.dumps(connection))


@pytest.fixture
def sql_file() -> str:
    (HOME / "dags" / "delays.sql").write_text(SQL)
    return "delays.sql"


@pytest.mark.parametrize("waiting", ["trigger", "defer", "poke"])
@pytest.mark.parametrize("from_file", [False, True], ids=["text", "file"])
def test_what_the_sql_reads_and_writes_is_locked(
    waiting: Any, from_file: bool, sql_file: str, manager: LockManager, run: Run
) -> None:
    seen: list[list[str]] = []
    with dag(template_searchpath=str(HOME / "dags")) as made:
        given = {**GIVEN, "lock_sql": sql_file} if from_file else GIVEN
        LockedWork(task_id="work", manager=manager, seen=seen, waiting=waiting, **given)
    assert run(made, logical_date=DAY).state == "success"
    assert [sorted(each) for each in seen] == [LOCKS]
    assert not manager.show()


@pytest.mark.parametrize("given", [{"lock_database": "{{ params.db }}"}, {"schema": "{{ params.db }}"}], ids=str)
@pytest.mark.parametrize("waiting", ["trigger", "poke"])
def test_the_database_of_the_sql_can_be_a_template(
    waiting: Any, given: dict[str, Any], manager: LockManager, run: Run
) -> None:
    """It was never rendered, so the task failed: '{{ params.db }}' is not a database name."""
    seen: list[list[str]] = []
    with dag(params={"db": "dw"}) as made:
        options = {"hql": "DROP TABLE t", "lock_sql": True, "waiting": waiting, **given}
        LockedHive(task_id="work", manager=manager, seen=seen, **options)
    assert run(made, logical_date=DAY).state == "success"
    assert [sorted(each) for each in seen] == [["dw SHARED", "dw.t EXCLUSIVE"]]


async def test_the_trigger_renders_and_plans_the_sql(manager: LockManager, triggerer: Triggerer) -> None:
    with dag():
        task = HiveLockOperator(task_id="lock", **GIVEN)
    event = await triggerer.event(await triggerer.start(task, logical_date=DAY))
    assert isinstance(event, TaskSuccessEvent)
    assert sorted(f"{holder.object} {holder.mode.value}" for holder in manager.show()) == LOCKS
    assert {holder.query for holder in manager.show()} == {SQL.replace("{{ ds }}", "2013-01-15")}


async def test_a_files_text_is_shipped_to_the_triggerer(
    sql_file: str, manager: LockManager, triggerer: Triggerer
) -> None:
    """Where no DAG files are."""
    with dag(template_searchpath=str(HOME / "dags")) as made:
        task = HiveLockOperator(task_id="lock", **{**GIVEN, "lock_sql": sql_file})
    made.resolve_template_files()  # type: ignore[no-untyped-call]  # as the DAG processor does
    (HOME / "dags" / sql_file).unlink()
    event = await triggerer.event(await triggerer.start(task, logical_date=DAY))
    assert isinstance(event, TaskSuccessEvent)
    assert sorted(f"{holder.object} {holder.mode.value}" for holder in manager.show()) == LOCKS


@starts_in_triggerer
def test_sql_that_includes_another_file_is_rendered_on_a_worker(sql_file: str) -> None:
    (HOME / "dags" / "both.sql").write_text("{% include 'delays.sql' %}; SELECT * FROM dw.planes")
    with dag(template_searchpath=str(HOME / "dags")) as made:
        task = HiveLockOperator(task_id="lock", **{**GIVEN, "lock_sql": "both.sql"})
    assert task.start_from_trigger
    made.resolve_template_files()  # type: ignore[no-untyped-call]
    assert not task.start_from_trigger


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * {{ 'FRM' }} dw.planes", "line 1, column 14"),
        ("SELECT * FROM dw.t WHERE dt = '{{ params.nothing }}'", "has no attribute 'nothing'"),
        pytest.param(
            "nowhere.sql", "'nowhere.sql' is not in the folders of this DAG's templates", marks=starts_in_triggerer
        ),
    ],
)
async def test_sql_that_cannot_be_planned_locks_nothing(
    sql: str, said: str, manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    with dag():
        task = HiveLockOperator(task_id="lock", lock_sql=sql)
    event = await triggerer.event(await triggerer.start(task, logical_date=DAY))
    assert isinstance(event, TaskFailedEvent)
    assert said in lines()
    assert not manager.show()


def test_an_operators_own_sql_can_be_what_declares_its_locks() -> None:
    with dag():
        task = Locked(task_id="work", sql=SQL, lock_sql=True)
        other = Locked(task_id="other", sql="SELECT 1", lock_sql=SQL)
        assert (task.lock_sql, other.lock_sql, other.sql) == (SQL, SQL, "SELECT 1")
        assert HiveLockedSparkSubmitOperator(task_id="submit", application="x.py", lock_sql=SQL).lock_sql == SQL
        several = Locked(task_id="several", sql=["DROP TABLE t -- the old one", "DROP TABLE u;"], lock_sql=True)
        assert plan_statements(several.lock_sql)[1] == [LockObject("default", "t"), LockObject("default", "u")]
        with pytest.raises(InvalidRequest, match="no sql or hql as a text"):
            HiveLockedSparkSubmitOperator(task_id="none", application="x.py", lock_sql=True)
        with pytest.raises(InvalidRequest, match="as a text or one file"):
            Locked(task_id="files", sql=["a.sql", "b.sql"], lock_sql=True)
    assert {"sql", "lock_sql"} <= set(Locked.template_fields)


def test_the_operators_own_schema_is_the_default_database(manager: LockManager) -> None:
    given: dict[str, Any] = {"manager": manager, "seen": [], "schema": "dw"}
    with dag():
        task = LockedHive(task_id="work", hql="DROP TABLE t", lock_sql=True, **given)
        assert (task.lock_sql, task.lock_database) == ("DROP TABLE t", "dw")
        other = LockedHive(task_id="other", hql="x", lock_sql="USE y", lock_database="z", **given)
        assert other.lock_database == "z"


@pytest.mark.parametrize("off_by", ["connection", "default_args", "task"])
@pytest.mark.parametrize("waiting", ["trigger", "poke"])
def test_locking_can_be_turned_off_and_says_what_that_risks(
    off_by: str, waiting: Any, manager: LockManager, run: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    if off_by == "connection":
        of_connection(monkeypatch, concurrency=False)
    off: dict[str, Any] = {"support_concurrency": False}
    seen: list[list[str]] = []
    with dag(default_args=off if off_by == "default_args" else {}) as made:
        own = off if off_by == "task" else {}
        lock = HiveLockOperator(task_id="lock", waiting=waiting, **GIVEN, **own)
        adopts = LockedWork(task_id="adopts", manager=manager, seen=seen, lease=lock.output)
        alone = LockedWork(task_id="alone", manager=manager, seen=seen, waiting=waiting, **GIVEN, **own)
        sensor = HiveLockSensor(task_id="sensor", writes=["dw.delays"], **own)
        lock >> adopts >> alone >> sensor >> HiveUnlockOperator(task_id="unlock", lease=lock.output)
    assert run(made, logical_date=DAY).state == "success"
    assert seen == [[], []]
    assert "warning: NOT LOCKED: locking is turned off by " in lines()
    assert ("connection 'hivelock_default'" if off_by == "connection" else "support_concurrency") in lines()


@pytest.mark.parametrize("waiting", ["trigger", "poke"])
@pytest.mark.parametrize(("own", "locked"), [(None, False), (True, True)])
def test_a_session_that_turns_locking_off_does_so_unless_the_task_says_otherwise(
    waiting: Any, own: bool | None, locked: bool, manager: LockManager, run: Run, lines: Lines
) -> None:
    seen: list[list[str]] = []
    given = {**GIVEN, "lock_sql": f"SET hive.support.concurrency=false; {SQL}", "support_concurrency": own}
    with dag() as made:
        LockedWork(task_id="work", manager=manager, seen=seen, waiting=waiting, **given)
    assert run(made, logical_date=DAY).state == "success"
    assert [sorted(each) for each in seen] == [LOCKS if locked else []]
    said = "NOT LOCKED: locking is turned off by SET hive.support.concurrency=false"
    assert (said in lines()) is not locked


def test_a_task_can_lock_although_its_connection_does_not(
    manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_connection(monkeypatch, concurrency=False)
    with dag() as made:
        HiveLockOperator(task_id="lock", waiting="poke", writes=["dw.delays"], support_concurrency=True)
    assert run(made, logical_date=DAY).state == "success"
    assert manager.show("dw.delays")


async def test_the_trigger_locks_nothing_where_it_is_turned_off(
    manager: LockManager, triggerer: Triggerer, lines: Lines
) -> None:
    with dag():
        task = HiveLockOperator(task_id="lock", writes=["dw.delays"], support_concurrency=False)
    event = await triggerer.event(await triggerer.start(task, logical_date=DAY))
    assert isinstance(event, TaskSuccessEvent)
    assert [xcom.value for xcom in triggerer.xcoms] == [OFF]
    assert "NOT LOCKED" in lines()
    assert not manager.show()


@pytest.mark.parametrize(
    ("extra", "timeout_s"),
    [
        ({}, None),
        ({"numretries": 100, "sleep_between_retries": "60s"}, 6000),
        ({"numretries": "3", "sleep_between_retries": 5}, 15),
        ({"numretries": 2}, 120),
        ({"sleep_between_retries": "200ms"}, 20),
        ({"numretries": 0}, 0),
    ],
)
def test_hives_retries_are_a_time_out(
    extra: dict[str, Any], timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_connection(monkeypatch, **extra)
    assert HiveLockHook().settings.lock_timeout_s == timeout_s


@pytest.mark.parametrize("waiting", ["trigger", "poke"])
def test_retries_that_the_sql_sets_are_the_time_out_of_a_task_that_names_none(
    waiting: Any, manager: LockManager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_connection(monkeypatch, numretries=100)
    manager.acquire(owner="somebody", writes=["dw.delays"])
    sql = "SET hive.lock.numretries=1; SET hive.lock.sleep.between.retries=50ms; DROP TABLE dw.delays"
    with dag() as made:
        HiveLockOperator(task_id="lock", lock_sql=sql, waiting=waiting)
    assert run(made, logical_date=DAY).state == "failed"
    assert [(holder.owner, str(holder.object)) for holder in manager.show("dw.delays")] == [("somebody", "dw.delays")]
    assert not manager.waiters()
    with pytest.raises(InvalidRequest, match=r"SET hive\.lock\.numretries='x'"):
        HiveLockOperator(task_id="lock", lock_sql="SET hive.lock.numretries=x; DROP TABLE dw.delays")


@pytest.mark.parametrize(
    "extra",
    [
        {"numretries": -1},
        {"numretries": True},
        {"sleep_between_retries": "soon"},
        {"concurrency": "no"},
        {"locks": "x"},
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    of_connection(monkeypatch, **extra)
    with pytest.raises(InvalidRequest, match=next(iter(extra))):
        _ = HiveLockHook().settings


@pytest.mark.parametrize("own", [None, timedelta(0)])
async def test_the_connections_time_out_is_that_of_tasks_that_name_none(
    own: timedelta | None, manager: LockManager, triggerer: Triggerer, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_connection(monkeypatch, numretries=1 if own is None else 100, sleep_between_retries="50ms")
    manager.acquire(owner="somebody", writes=["dw.delays"])
    with dag():
        task = HiveLockOperator(task_id="lock", writes=["dw.delays"], timeout=own)
    assert isinstance(await triggerer.event(await triggerer.start(task)), TaskFailedEvent)
    assert "somebody holds dw.delays" in lines()


@pytest.mark.parametrize("name", ["sql", "lock_sql"])
def test_the_lock_task_takes_it_by_either_name(name: str, manager: LockManager, run: Run) -> None:
    with dag() as locks:
        HiveLockOperator(task_id="lock", **{name: SQL}, unpartitioned=["dw.planes"])
    assert run(locks, logical_date=DAY).state == "success"
    assert [f"{holder.object} {holder.mode.value}" for holder in manager.show()] == LOCKS


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="sql or lock_sql, not both"):
        HiveLockOperator(task_id="lock", sql=SQL, lock_sql=SQL)


def test_a_table_that_is_named_as_read_keeps_the_type_that_its_insert_takes() -> None:
    """Else it would only be read, and others could write what the insert does."""
    hook: Any = SimpleNamespace(
        catalog=Catalog, url="metastore://hive", settings=SimpleNamespace(locks="hive", txn=DEFAULT_TXN)
    )
    insert = "INSERT OVERWRITE TABLE dw.t PARTITION (dt) SELECT a, dt FROM dw.u"
    request = LockSpec(["dw.t"], [], lock_sql=insert).request(hook, Owner("here", "dag", "run", "lock"), 1)
    assert rules.components(request)[LockObject("dw", "t")] is LockType.EXCLUSIVE
