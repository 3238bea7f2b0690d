"""Values that Airflow stores for this package survive a real jsonb column of PostgreSQL without a change in meaning.

Airflow stores serialized DAGs there, with the arguments of triggers that start tasks, and the events that resume tasks.
Tests without a server use :mod:`tests.airflow.jsonb`, which is compared with the real column here.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import warnings
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import BaseSerialization
from airflow.triggers.base import BaseTrigger
from hypothesis import given, settings
from hypothesis import strategies as st

import airflow_hivelock
from airflow_hivelock import HiveLockHook
from airflow_hivelock.locks import Lease, LeaseLimit, LockManager, rules
from airflow_hivelock.locks.backends.database import values as rows
from airflow_hivelock.locks.backends.zookeeper import record as nodes
from airflow_hivelock.locks.backends.zookeeper import start
from airflow_hivelock.locks.backends.zookeeper.client import Node, Stat
from airflow_hivelock.locks.model import owner_key
from airflow_hivelock.operators.acquiring import AcquiresLocks
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.spec import FIELDS, TERMS, LeaseTerms, LockSpec, Owner
from tests.airflow import jsonb
from tests.airflow.triggerer import starts_in_triggerer
from tests.support.airflow_names import DagSerialization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import PostgresServer

    Store = Callable[[Any], Any]

pytestmark = pytest.mark.integration

ARGUMENTS: dict[str, Any] = {
    "hivelock_conn_id": "hivelock_other",
    "reads": ["dw.flights/dt=2013-01-15", "dw.b/hr=1..3"],
    "writes": ["dw.delays/dt=2013-01-15/hr=x%2Fy", "dw.delays/dt=ü"],
    "unpartitioned": ["dw.carriers", "dw.air"],
    "waited_for": ["here/dag/run/other/-1"],
    "lock_sql": "INSERT INTO t PARTITION (b = 1, a = 'ü') SELECT * FROM flights JOIN c ON \"x\" WHERE dt = '2013-01-15' AND hr = 4",
    "lock_database": "dw",
    "partition_columns": {"dw.flights": ["dt"], "dw.t": ["b", "a"], "dw.c": ["hr"]},
    "support_concurrency": True,
    "timeout_s": 0.25,
    "owner": "here/dag/run/lock/-1",
    "attempt": 3,
    "lease_s": 60.5,
    "ends_task": False,
    "soft_fail": True,
    "every_s": 0.001,
    "warning": "a warning",
    "max_leases": 4,
    "lease_group": "rerun",
    "weight": 3,
    "lock_priority": 10,
    "round_number": 2,
    "waited_s": 7.5,
    "slot_s": 2.5,
    "asked_s": 1358208000.25,
    "unanswered": 2,
    "ends": True,
}
"""What triggers and operators are made with: every parameter there is, none at its default."""

LOCKS = rules.request("me", ["dw.flights/dt=2013-01-15"], ["dw.delays/dt=2013-01-15"])


@pytest.fixture(scope="module")
def store(postgres: PostgresServer) -> Iterator[Store]:
    """Store a value, and read it."""
    import psycopg  # `make matrix` runs the other tests here without a driver

    with psycopg.connect(postgres.url, autocommit=True) as connection:

        def stored(value: Any) -> Any:
            row = connection.execute("SELECT %s::jsonb::text", [json.dumps(value)]).fetchone()
            assert row
            return json.loads(row[0])

        yield stored


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda some: st.lists(some) | st.dictionaries(TEXT, some)
    )
)
def test_what_stands_for_jsonb_elsewhere_is_like_it(store: Store, value: Any) -> None:
    assert json.dumps(jsonb.stored(value)) == json.dumps(store(value))


def test_every_trigger_comes_back_with_all_of_its_arguments(store: Store) -> None:
    found = triggers()
    assert len(found) == len(set(found)) >= 3
    for cls in found:
        given = {name: argument(name, default) for name, default in parameters(cls).items()}
        path, arguments = cls(**given).serialize()
        assert path == f"{cls.__module__}.{cls.__name__}"
        assert arguments == given, f"{cls.__name__}: what is missing is forgotten when a triggerer takes it over"
        assert store(arguments) == given
        assert cls(**store(arguments)).serialize() == (path, given)


@starts_in_triggerer
def test_every_operator_that_starts_in_the_triggerer_asks_for_the_same_there(store: Store) -> None:
    found = [cls for cls in public() if issubclass(cls, NamesLocks)]
    assert len(found) >= 4
    named = {name: ARGUMENTS[name] for name in parameters(NamesLocks, to=NamesLocks)}
    assert named.keys() == {"hivelock_conn_id", *FIELDS}
    assert set(TERMS) <= parameters(AcquiresLocks, to=AcquiresLocks).keys()
    for cls in found:
        names = named | ({name: ARGUMENTS[name] for name in TERMS} if issubclass(cls, AcquiresLocks) else {})
        with DAG("dag", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)) as dag:
            task = cls(task_id="lock", **names)
        copied = DagSerialization.from_dict(store(DagSerialization.to_dict(dag))).get_task("lock").start_trigger_args
        assert copied is not None, cls
        path, arguments = copied.trigger_cls, BaseSerialization.deserialize(copied.trigger_kwargs)
        assert arguments == task.start_trigger_args.trigger_kwargs
        asked = requested(task.start_trigger_args.trigger_cls, task.start_trigger_args.trigger_kwargs)
        assert requested(path, arguments) == asked
        assert len(asked.locks) > len(names["reads"]) + len(names["writes"])
        limited = issubclass(cls, AcquiresLocks)
        assert (asked.priority, asked.limit) == ((10, LeaseLimit("rerun", 4, 3)) if limited else (1, None))


def requested(path: str, arguments: dict[str, Any]) -> Any:
    """The request that the trigger would make."""
    module, _, name = path.rpartition(".")
    trigger = getattr(importlib.import_module(module), name)(**arguments)
    terms = LeaseTerms.of(trigger) if hasattr(trigger, "max_leases") else LeaseTerms()
    return LockSpec.of(trigger).request(HiveLockHook("hivelock_default"), Owner("here", "dag", "run", "lock"), 1, terms)


def test_a_lease_in_an_event_or_an_xcom_is_the_same_lease(store: Store, manager: LockManager) -> None:
    lease = manager.acquire(owner="me", reads=["dw.flights/dt=2013-01-15"], writes=["dw.delays/dt=2013-01-15"])
    data = store(lease.to_json())
    assert list(data["locks"]) != list(lease.to_json()["locks"]), "this test is blind: jsonb has kept the order"
    assert Lease.from_json(data) == lease
    taken = manager.begin(replace(LOCKS, locks=Lease.from_json(data).locks), lambda: None).poll()
    assert isinstance(taken, Lease)
    assert taken.id == lease.id


def test_a_record_is_that_of_the_same_request(store: Store) -> None:
    written = start.start(None, LOCKS, "process", 7)
    data = json.dumps(store(json.loads(written.encode()))).encode()
    read = nodes.Record.decode(Node(data, Stat(9, 9, 0, 0, 0, ephemeral=False, created=0)), f"/{owner_key('me')}")
    assert read.locks == written.locks
    assert start.start(read, LOCKS, "process", 8).state is written.state
    assert rows.decode(json.dumps(store(json.loads(rows.encode(LOCKS.locks)))), "me") == LOCKS.locks


def public() -> list[Any]:
    """The classes that users write in their DAGs."""
    return [cls for name in airflow_hivelock.__all__ if isinstance(cls := getattr(airflow_hivelock, name), type)]


def triggers() -> list[Any]:
    """Every trigger of the package, in all modules except the one that needs the extra ``openlineage``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's own, of what its API server imports
        for module in pkgutil.walk_packages(airflow_hivelock.__path__, "airflow_hivelock."):
            if not module.name.startswith(("airflow_hivelock.locks", "airflow_hivelock.lineage")):
                importlib.import_module(module.name)

    def below(cls: Any) -> Iterator[Any]:
        for found in cls.__subclasses__():
            yield found
            yield from below(found)

    ours = (cls for cls in below(BaseTrigger) if cls.__module__.startswith("airflow_hivelock."))
    return [cls for cls in ours if not cls.__name__.startswith("_")]


def parameters(cls: Any, to: Any = BaseTrigger) -> dict[str, Any]:
    """What *cls* is made with, by name: the defaults, its bases' up to *to* included."""
    own = [base for base in cls.__mro__ if issubclass(base, to) and base.__module__.startswith("airflow_hivelock.")]
    found = {name: given for base in own for name, given in inspect.signature(base.__init__).parameters.items()}
    spec = {each.name: each.default for each in fields(LockSpec)} if "spec" in found else {}
    if "terms" in found:
        spec |= {each.name: each.default for each in fields(LeaseTerms)}
    named = {name: given for name, given in found.items() if name != "self" and given.kind is not given.VAR_KEYWORD}
    return spec | {name: given.default for name, given in named.items()}


def argument(name: str, default: Any) -> Any:
    assert name in ARGUMENTS, f"{name} is new: give it a value in ARGUMENTS that is not its default"
    assert ARGUMENTS[name] != default
    return ARGUMENTS[name]
