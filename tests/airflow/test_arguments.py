"""What cannot be meant is refused when the DAG is parsed: before a task takes a slot, or a run begins."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, task_group

from airflow_hivelock import (
    HiveForceUnlockOperator,
    HiveLockMixin,
    HiveLockOperator,
    HiveLockSensor,
    HiveUnlockOperator,
    release_locks,
)
from airflow_hivelock.locks import InvalidRequest

TASK = {"task_id": "t"}


class LockedBash(HiveLockMixin, BashOperator):
    """BashOperator under locks."""

    def __init__(self, bash_command: str = "true", **kwargs: Any) -> None:
        super().__init__(bash_command=bash_command, **kwargs)


class LockedWithSql(HiveLockMixin, EmptyOperator):
    """With a ``sql`` and a ``schema`` of its own, as Airflow's operators for Hive."""

    def __init__(self, *, sql: str, schema: str = "default", **kwargs: Any) -> None:
        self.sql, self.schema = sql, schema
        super().__init__(**kwargs)


NAMES_LOCKS = [HiveLockOperator, HiveLockSensor, LockedBash]

WRONG_CONNECTIONS: list[tuple[Any, str]] = [
    ("{{ params.store }}", "hivelock_conn_id='{{ params.store }}' is invalid. .* It cannot be a template"),
    (None, "hivelock_conn_id=None is invalid. Write the id of one connection"),
    (["a", "b"], "hivelock_conn_id="),
    ("", "hivelock_conn_id=''"),
]

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"writes": "dw.t"}, r"t: writes='dw\.t' must be a list of names, as in \['dw\.t'\]"),
    ({"reads": 5}, r"t: reads=5 must be a list of names, as in \['dw\.flights'\]"),
    ({"reads": None}, r"t: reads=None must be a list of names, as in \['dw\.flights'\]"),
    ({"reads": "['dw.t']"}, "If it is a template, set render_template_as_native_obj=True"),
    ({"writes": ["dw.t/dt={ds}"]}, r"'\{ds\}' is not a plain value. .* or '%7Bds\}' if"),
    ({"writes": ["dw.t/dt=%(ds)s"]}, r"'%\(ds\)s' is not a plain value. .* or '%25\(ds\)s' if"),
    (
        {"reads": ["dw.t/dt=2013-01-01:2013-01-31"]},
        r"a range as '2013-01-01\.\.2013-01-31', or '2013-01-01%3A2013-01-31' if",
    ),
    ({"writes": ["dw.t/dt=*"]}, r"'\*' is not a plain value. .* To lock all partitions, name the table"),
    ({"reads": {"dw.t": 1}, "writes": ["dw.u"]}, "must be a list"),
    ({"writes": ["dw.t/dt"]}, "'dt' is not a partition level"),
    ({"writes": ["dw.t/"]}, "ends in '/'"),
    ({"writes": ["d-w.t"]}, "'d-w' is not a database name"),
    ({"reads": ["dw.t", None]}, "None is not the name of a lock object"),
    ({"reads": ["dw.t/dt=2013-02-01..2013-01-01"]}, "ends before it begins"),
    ({"reads": ["dw.t/n=1..200000"]}, "ranges over"),
    ({"reads": ["dw.t/dt={{ ds }}", "dw.t/dt"]}, "'dt' is not a partition level"),
    ({"lock_sql": "INSERT INTO"}, "t: line 1"),
    ({"lock_sql": "SELECT 'x FROM dw.t"}, "does not end"),
    ({"lock_sql": "SELECT * FROM t", "lock_database": "no-name"}, "'no-name' is not a database name"),
    ({"reads": ["dw.t"], "unpartitioned": "dw.t"}, "unpartitioned='dw.t' must be a list"),
    ({"reads": ["dw.t"], "unpartitioned": ["dw.t/dt=1"]}, "is not a table"),
    ({"reads": ["dw.t"], "partition_columns": ["dt"]}, "must be a dict"),
    ({"reads": ["dw.t"], "partition_columns": {"dw.t": "dt"}}, "must be a list of columns"),
    ({"reads": ["dw.t"], "support_concurrency": "no"}, "Use True, False or None"),
    ({"reads": ["dw.t"], "support_concurrency": 1}, "Use True, False or None"),
    *[({"reads": ["dw.t"], "hivelock_conn_id": wrong}, f"t: {said}") for wrong, said in WRONG_CONNECTIONS],
]

WRONG_LEASES: list[tuple[dict[str, Any], str]] = [
    ({"lease": "lock"}, "lease='lock' is not a lease. Pass the value that the lock task returns: lease=lock.output"),
    ({"lease": True}, "lease=True is not a lease"),
    ({"lease": EmptyOperator(task_id="lock")}, r"lease=<Task\(EmptyOperator\): lock> is not a lease"),
]

WRONG_WAITING = [
    ({"timeout": timedelta(seconds=-1)}, "timeout"),
    ({"timeout": 60}, "Use a timedelta"),
    ({"lease_duration": timedelta()}, "lease_duration"),
    ({"lease_duration": None}, "t: lease_duration=None is invalid. Use a timedelta"),
    ({"lease_duration": timedelta(days=400)}, "longest lease is a year"),
    ({"waiting": "sleep"}, "Use one of trigger, defer, reschedule, poke"),
]

WRONG_TERMS = [
    ({"max_leases": 0}, "t: max_leases=0 .* a whole number from 1"),
    ({"max_leases": True}, "max_leases=True"),
    ({"max_leases": "4"}, "max_leases='4'"),
    ({"max_leases": 20_000}, "from 1 to 10,000"),
    ({"weight": 2}, "weight=2 has no effect, .* Set lease_group"),
    ({"lease_group": "rerun", "weight": 0}, "weight=0, .* from 1 to 100"),
    ({"max_leases": 2, "weight": True}, "weight=True"),
    ({"max_leases": 4, "lease_group": " "}, "is not the name of a group"),
    ({"max_leases": 4, "lease_group": 7}, "is not the name of a group"),
    ({"lease_group": "{{ params.team }}"}, "lease_group='{{ params.team }}' is not rendered"),
    ({"lock_priority": "high"}, "lock_priority='high' is invalid. Give a whole number"),
    ({"lock_priority": 1.5}, "lock_priority=1.5"),
    ({"lock_priority": 10**10}, "up to 1,000,000,000"),
]

RIGHT: list[dict[str, Any]] = [
    {"writes": ["dw.t/dt={{ ds }}"]},
    {"writes": "{{ ti.xcom_pull('names') }}"},
    {"writes": ["{% if true %}dw.t{% endif %}"]},
    {"lock_sql": "INSERT INTO {{ params.table }} SELECT"},
    {"lock_sql": "no_such_file.sql"},
    {"lock_sql": "SELECT * FROM t WHERE dt = '2013-1-5'"},
    {"reads": ["dw.t/dt=2013-1-5"]},
    {"reads": ("dw.t/dt=2013-01-01..2013-01-31",)},
]
"""What rendering mends, or a metastore decides."""


@pytest.mark.parametrize("cls", NAMES_LOCKS)
@pytest.mark.parametrize(("options", "said"), WRONG, ids=str)
def test_names_and_sql_that_cannot_be_meant_are_refused(cls: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        cls(**TASK, **options)


@pytest.mark.parametrize(("options", "said"), WRONG_LEASES, ids=str)
def test_a_passed_lease_that_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^t: {said}"):
        LockedBash(**TASK, **options)


@pytest.mark.parametrize("cls", NAMES_LOCKS)
def test_names_that_can_be_read_only_once_are_refused(cls: Any) -> None:
    """To check them would leave none to lock."""
    with pytest.raises(InvalidRequest, match="must be a list of names"):
        cls(**TASK, reads=(f"dw.t{n}" for n in range(2)))


@pytest.mark.parametrize("cls", [HiveLockOperator, LockedBash])
@pytest.mark.parametrize(("options", "said"), WRONG_WAITING, ids=str)
def test_how_to_wait_is_refused(cls: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        cls(**TASK, writes=["dw.t"], **options)


@pytest.mark.parametrize("wrong", ["x", None, 1])
def test_a_sensor_that_neither_defers_nor_pokes_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"^t: deferrable={wrong!r} is invalid. Use True or False"):
        HiveLockSensor(**TASK, reads=["dw.t"], deferrable=wrong)
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match="deferrable="):
        HiveLockSensor.partial(**TASK, deferrable=wrong).expand(reads=[["dw.t"]])


@pytest.mark.parametrize("cls", NAMES_LOCKS)
@pytest.mark.parametrize("name", ["on_success_callback", "on_failure_callback", "on_retry_callback"])
@pytest.mark.parametrize("wrong", ["release_locks", ["release_locks"]])
def test_a_callback_that_is_no_function_is_refused(cls: Any, name: str, wrong: Any) -> None:
    """Airflow calls each letter of the text in a run, and only logs the errors."""
    said = f"^t: {name} is not a function. Remove the quotes"
    options = {name: wrong, "writes": ["dw.t"]}
    with pytest.raises(InvalidRequest, match=said):
        cls(**TASK, **options)
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match=said):
        cls.partial(**TASK, **options).expand(doc=["one", "two"])
    with DAG("defaults", schedule=None, default_args={name: wrong}), pytest.raises(InvalidRequest, match=said):
        cls(**TASK, writes=["dw.t"])
    cls(**TASK, writes=["dw.t"], **{name: [release_locks, print]})


@pytest.mark.parametrize("cls", [HiveUnlockOperator, HiveForceUnlockOperator])
def test_a_callback_that_is_no_function_is_refused_after_the_work_too(cls: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^t: on_failure_callback is not a function\. Remove the quotes"):
        cls(**TASK, on_failure_callback="release_locks")
    cls(**TASK, on_failure_callback=[release_locks, print])


@pytest.mark.parametrize("cls", [HiveLockOperator, LockedBash])
@pytest.mark.parametrize(("options", "said"), WRONG_TERMS, ids=str)
def test_terms_that_cannot_be_meant_are_refused(cls: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        cls(**TASK, writes=["dw.t"], **options)
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match=said):
        cls.partial(**TASK, **options).expand(writes=[["dw.a"]])


@pytest.mark.parametrize("cls", [HiveLockOperator, LockedBash])
def test_the_terms_of_each_mapped_task_are_looked_at(cls: Any) -> None:
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match="max_leases=0"):
        cls.partial(**TASK, writes=["dw.t"]).expand(max_leases=[1, 0])


def test_a_weight_that_is_larger_than_any_priority_is_the_largest() -> None:
    assert HiveLockOperator(**TASK, writes=["dw.t"], priority_weight=2**31 - 1).lock_priority == 10**9


@pytest.mark.parametrize("name", ["max_leases", "lease_group", "weight", "lock_priority"])
def test_a_sensor_takes_no_terms(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        HiveLockSensor(**{**TASK, "reads": ["dw.t"], name: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", NAMES_LOCKS)
@pytest.mark.parametrize("options", RIGHT, ids=str)
def test_what_is_rendered_or_a_metastore_decides_is_left_alone(cls: Any, options: dict[str, Any]) -> None:
    cls(**TASK, **options)


@pytest.mark.parametrize("cls", NAMES_LOCKS)
def test_what_another_task_returns_is_left_alone(cls: Any) -> None:
    with DAG("given", schedule=None):
        names = EmptyOperator(task_id="names").output
        cls(task_id="all", writes=names)
        cls(task_id="one", writes=[names, "dw.t"])


@pytest.mark.parametrize("cls", NAMES_LOCKS)
def test_what_a_mapped_group_is_given_is_rendered_on_a_worker(cls: Any) -> None:
    with DAG("given", schedule=None):

        @task_group
        def group(names: Any, name: Any, sql: Any) -> None:
            for task_id, options in (
                ("all", {"reads": names}),
                ("one", {"writes": [name]}),
                ("sql", {"lock_sql": sql}),
            ):
                assert not cls(task_id=task_id, **options).start_from_trigger

        group.expand(names=[["dw.a"]], name=["dw.a"], sql=["SELECT * FROM dw.a"])


def test_an_operator_s_own_sql_and_schema_are_looked_at() -> None:
    with pytest.raises(InvalidRequest, match="line 1"):
        LockedWithSql(**TASK, sql="INSERT INTO", lock_sql=True)
    LockedWithSql(**TASK, sql="INSERT INTO {{ x }}", lock_sql=True)
    LockedWithSql(**TASK, sql="SELECT * FROM t", schema="{{ x }}", lock_sql=True)


def test_other_marks_of_templates_are_the_dag_s_own() -> None:
    with DAG("marks", schedule=None, jinja_environment_kwargs={"variable_start_string": "[["}):
        HiveLockOperator(**TASK, writes=["dw.t/dt=[[ ds ]]", "[[ name ]]"])


MAPPED = [
    (lambda cls: cls.partial(**TASK, writes="dw.t"), "writes='dw.t' must be a list"),
    (lambda cls: cls.partial(**TASK, lock_sql="INSERT INTO"), "line 1"),
    (lambda cls: cls.partial(**TASK).expand(writes=[["dw.a"], ["dw.b/dt"]]), "'dt' is not a partition level"),
    (lambda cls: cls.partial(**TASK).expand(lock_sql=["SELECT * FROM t", "INSERT INTO"]), "line 1"),
    (lambda cls: cls.partial(**TASK).expand_kwargs([{"writes": ["dw.a"]}, {"writes": "dw.b"}]), "'dw.b' must be"),
]


class LockedEmpty(HiveLockMixin, EmptyOperator):
    """Its arguments are the mixin's own, so each of its names is in its mapped arguments."""


NOTHING: list[Any] = [
    lambda cls: cls.partial(**TASK).expand(writes=[["dw.a"], []]),
    lambda cls: cls.partial(**TASK).expand(reads=[["dw.a"], []], lock_sql=["", "SELECT * FROM t"]),
    lambda cls: cls.partial(**TASK, writes=()).expand(doc=["one", "two"]),
    lambda cls: cls.partial(**TASK).expand_kwargs([{"writes": ["dw.a"]}, {"doc": "two"}]),
]


@pytest.mark.parametrize("cls", [HiveLockOperator, HiveLockSensor, LockedEmpty])
@pytest.mark.parametrize("make", NOTHING)
def test_a_mapped_task_that_names_nothing_is_refused(cls: Any, make: Any) -> None:
    """It failed only in a run."""
    said = "pass one of lease, lock_sql, or reads and writes" if cls is LockedEmpty else "asks for no locks"
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match=f"^t:? {said}"):
        make(cls)


def test_a_mapped_task_names_its_locks_anywhere() -> None:
    class Loads(LockedEmpty):
        def __init__(self, *, table: str, **kwargs: Any) -> None:
            super().__init__(writes=[table], **kwargs)

    with DAG("mapped", schedule=None, default_args={"writes": ["dw.t"]}):
        HiveLockOperator.partial(task_id="defaults").expand(doc=["one", "two"])
    with DAG("mapped", schedule=None):
        outlets = [Asset("hive://hive:10000/dw/t")]
        lock = HiveLockOperator.partial(task_id="alias").expand(sql=["SELECT * FROM t"])
        HiveLockOperator.partial(task_id="skipped").expand(writes=[])
        HiveLockOperator.partial(task_id="both", writes=["dw.t"]).expand(reads=[["dw.a"], []])
        LockedEmpty.partial(task_id="passed").expand(lease=lock.output)
        with pytest.raises(InvalidRequest, match="two: pass one of lease"):
            LockedEmpty.partial(task_id="two", writes=["dw.t"]).expand(lease=lock.output)
        LockedEmpty.partial(task_id="assets", locks="assets", outlets=outlets).expand(doc=["one"])
        Loads.partial(task_id="own").expand(table=["dw.a", "dw.b"])


@pytest.mark.parametrize("cls", NAMES_LOCKS)
@pytest.mark.parametrize(("make", "said"), MAPPED)
def test_a_mapped_task_is_looked_at_as_far_as_its_values_are_known(cls: Any, make: Any, said: str) -> None:
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match=said):
        make(cls)


def test_the_connection_of_a_lock_task_cannot_be_mapped() -> None:
    with DAG("mapped", schedule=None):
        LockedBash.partial(task_id="work", bash_command="true", writes=["dw.a"]).expand(hivelock_conn_id=["a", "b"])
        ids = EmptyOperator(task_id="ids").output
        with pytest.raises(InvalidRequest, match="one: hivelock_conn_id cannot be mapped"):
            HiveLockOperator.partial(task_id="one", writes=["dw.a"]).expand(hivelock_conn_id=ids)
        with pytest.raises(InvalidRequest, match="two: hivelock_conn_id cannot be mapped"):
            HiveLockOperator.partial(task_id="two").expand_kwargs([{"writes": ["dw.a"], "hivelock_conn_id": "b"}])


@pytest.mark.parametrize("cls", [HiveLockOperator, LockedBash])
def test_so_is_how_a_mapped_task_waits(cls: Any) -> None:
    with DAG("mapped", schedule=None), pytest.raises(InvalidRequest, match="Use one of"):
        cls.partial(**TASK, waiting="sleep").expand(writes=[["dw.a"]])


def test_a_mapped_task_may_have_what_is_known_later() -> None:
    with DAG("mapped", schedule=None) as dag:
        names = EmptyOperator(task_id="names").output
        HiveLockOperator.partial(task_id="one", lease_duration=timedelta(hours=2)).expand(writes=names)
        HiveLockOperator.partial(task_id="two").expand(writes=[["dw.t/dt={{ ds }}"], names])
        LockedBash.partial(task_id="three", writes=["dw.t"]).expand(bash_command=["true", "false"])
        LockedBash.partial(task_id="four").expand_kwargs(names)
        LockedBash.partial(task_id="five").expand_kwargs([{"writes": ["dw.a"]}, names])
    assert [type(dag.get_task(task_id)).__name__ for task_id in ("one", "three")] == ["MappedOperator"] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objects": "dw.t"}, "objects='dw.t' must be a list"),
        ({"objects": ["dw.t/dt"]}, "^t: .*'dt' is not a partition level"),
        ({"leases": "id"}, "leases='id' must be a list"),
        ({"min_age": "5 minutes"}, "min_age='5 minutes' is invalid. Use a timedelta"),
        ({"min_age": timedelta(minutes=-1)}, "min_age"),
        ({"dry_run": "no"}, "dry_run='no' is invalid. Use True or False"),
        ({"reason": " "}, "the reason is empty"),
        *[({"hivelock_conn_id": wrong}, f"^t: {said}") for wrong, said in WRONG_CONNECTIONS],
        ({"objects": ["dw.t"], "stale": None}, "^t: stale=None is invalid. Use True or False"),
        ({"min_age": None}, "^t: min_age=None is invalid"),
        ({"objects": []}, r"^t: objects=\[\] is empty, so the task would release nothing"),
        ({"leases": (), "objects": ["dw.t"]}, r"^t: leases=\[\] is empty"),
    ],
)
def test_a_force_release_that_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        HiveForceUnlockOperator(task_id="t", **options).resolve_template_files()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"work_timeout": 60}, r"work_timeout=60 is invalid\. Use a timedelta"),
        ({"objects": "dw.t"}, r"objects='dw.t' must be a list of names"),
        ({"objects": ["dw.t/dt={{ ds }}", "dw.t/dt"]}, "'dt' is not a partition level"),
        ({"objects": []}, r"objects=\[\] is empty, so the task would release nothing"),
        ({"lease": []}, r"lease=\[\] is empty"),
        ({"lease": None}, "lease=None is not a lease. Pass lease=lock.output, or remove lease"),
        ({"work_timeout": None}, "work_timeout=None is invalid"),
        *[({"hivelock_conn_id": wrong}, said) for wrong, said in WRONG_CONNECTIONS],
        *WRONG_LEASES,
    ],
)
def test_an_unlock_that_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^t: .*{said}"):
        HiveUnlockOperator(task_id="t", **options).resolve_template_files()


def test_to_look_at_names_costs_a_dag_of_hundreds_of_tasks_next_to_nothing() -> None:
    def made_s(**options: Any) -> float:
        begun = time.process_time()
        for n in range(100):
            LockedBash(task_id=f"t{n}", **options)
        return (time.process_time() - begun) / 100

    plain = {"writes": ["dw.t/dt={{ ds }}"]}
    named = {"writes": ["dw.t/dt=2013-01-15"], "reads": [f"dw.u{n}/dt=2013-01-01..2013-01-31" for n in range(3)]}
    made_s(**named)
    assert min(made_s(**named) for _ in range(5)) < 15 * min(made_s(**plain) for _ in range(5))
