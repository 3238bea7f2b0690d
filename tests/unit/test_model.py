"""The values: no bad one exists, and what is written to a record or an XCom is read back the same."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import (
    Blocker,
    Holder,
    Lease,
    Lock,
    LockMode,
    LockObject,
    LockRequest,
    locks_from_json,
    locks_to_json,
)

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
LOCK = Lock(LockObject("dw", "flights", (("dt", "2013-01-01"),)), LockMode.EXCLUSIVE)
LEASE = Lease("id-1", 7, 2, 3, "dag/run/task", (LOCK,), 60.0, NOON)


def test_the_path_is_hives_znode() -> None:
    target = LockObject("Default", "T2", (("ds", "2024-01-01 10:00/x=y%z"), ("hr", "5")))
    assert target.path == ("default", "t2", "ds=2024-01-01 10%3A00%2Fx%3Dy%25z", "hr=5")


def test_parents_are_the_database_the_table_and_the_upper_levels() -> None:
    parents = LockObject.parse("dw.flights/dt=2013-01-01/hr=04").parents
    assert [str(parent) for parent in parents] == ["dw", "dw.flights", "dw.flights/dt=2013-01-01"]
    assert LockObject("dw").parents == ()


@pytest.mark.parametrize(
    ("below", "above", "is_below"),
    [
        ("dw.t/dt=1/hr=2", "dw.t/dt=1", True),
        ("dw.t/dt=1/hr=2", "dw", True),
        ("dw.t", "dw.t", False),
        ("dw.t", "dw.t/dt=1", False),
        ("dw.t2", "dw.t", False),
        ("dw.t/dt=10", "dw.t/dt=1", False),
        ("dw2.t", "dw", False),
    ],
)
def test_below_is_by_whole_components(below: str, above: str, is_below: bool) -> None:
    assert LockObject.parse(below).is_below(LockObject.parse(above)) is is_below


def test_objects_sort_with_parents_first() -> None:
    names = ["dw", "dw.a", "dw.a/dt=1", "dw.a/dt=1/hr=2", "dw.a/dt=2", "dw.b", "dx"]
    assert [str(target) for target in sorted(map(LockObject.parse, reversed(names)))] == names


def test_hives_default_partition_is_one_object_however_it_is_made() -> None:
    empty = LockObject("dw", "t", (("dt", ""),))
    assert empty == LockObject("dw", "t", (("dt", "__HIVE_DEFAULT_PARTITION__"),)) == LockObject.parse(str(empty))


@pytest.mark.parametrize(
    "parts",
    [("",), ("a/b",), ("dw", "t.u"), ("dw", "", (("dt", "1"),)), ("dw", "t", (("", "1"),)), ("dw", "t", (("hr", 4),))],
)
def test_a_bad_object_cannot_be_made(parts: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest):
        LockObject(*parts)


def test_parse_refuses_a_range_where_one_object_is_wanted() -> None:
    with pytest.raises(InvalidRequest, match="names 2 objects"):
        LockObject.parse("dw.t/hr=1..2")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"owner": owner} for owner in ("", " ", "a\nb", "a\x00", "x" * 2_001, None)),
        {"locks": ()},
        *({"lease_s": lease_s} for lease_s in (0, -1, float("nan"), float("inf"), 367 * 86_400)),
        *({"attempt": attempt} for attempt in (-1, 1.5, "1", True)),
    ],
)
def test_a_bad_request_cannot_be_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        LockRequest(**{"owner": "dag/run/task", "locks": (LOCK,), **wrong})


VALUES = st.text(max_size=6) | st.sampled_from(["1..3", "a/b", "", "x=y", "…", ".."])


@given(st.lists(st.tuples(VALUES, st.sampled_from(LockMode)), max_size=4))
def test_locks_survive_json(leaves: list[tuple[str, LockMode]]) -> None:
    modes: dict[LockObject, LockMode] = {}
    for value, mode in leaves:
        try:
            modes[LockObject("dw", "t", (("p", value),))] = mode
        except InvalidRequest:
            continue
    locks = tuple(Lock(target, mode) for target, mode in modes.items())
    copy = locks_from_json(json.loads(json.dumps(locks_to_json(locks), sort_keys=True)))
    assert copy == tuple(sorted(locks, key=lambda lock: lock.object))


def test_a_request_has_its_locks_in_one_order_however_they_are_given() -> None:
    locks = rules.request("o", ["dw.flights/p=1"], ["dw.b"]).locks
    assert LockRequest("o", locks[::-1]) == LockRequest("o", locks)
    assert LockRequest("o", locks[::-1]).locks == locks


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        (
            "CREATE TABLE dw.x USING jdbc OPTIONS (url 'jdbc:pg://h/d?user=a&password=hunter2&ssl=1', password 'hunter2')",
            "CREATE TABLE dw.x USING jdbc OPTIONS (url 'jdbc:pg://h/d?user=a&password=***&ssl=1', password ***)",
        ),
        (
            "SET TBLPROPERTIES ('fs.s3a.secret.key'='it''s hunter2', 'a'='b')",
            "SET TBLPROPERTIES ('fs.s3a.secret.key'=***, 'a'='b')",
        ),
        ('password = "hunt', "password = ***"),
        (
            "OPTIONS (fs.azure.account.key.a.dfs.core.windows.net r'hunter2', apiKey='hunter2')",
            "OPTIONS (fs.azure.account.key.a.dfs.core.windows.net ***, apiKey=***)",
        ),
        ("SELECT * FROM csv.`s3a://ann:hunter2@b/x`", "SELECT * FROM csv.`s3a://ann:***@b/x`"),
        ("SELECT * FROM csv.`hdfs://nn:8020/a@b`", "SELECT * FROM csv.`hdfs://nn:8020/a@b`"),
        ("SELECT * FROM f(password => 'hunter2')", "SELECT * FROM f(password => ***)"),
        ("SELECT token, 'a' FROM dw.t WHERE token = other", "SELECT token, 'a' FROM dw.t WHERE token = other"),
    ],
)
def test_a_password_in_sql_is_not_stored_with_the_locks_which_all_may_read(query: str, kept: str) -> None:
    assert LockRequest("me", (LOCK,), query=query).query == kept


def test_blanks_after_the_name_of_a_secret_do_not_hold_up_a_request() -> None:
    began_s = time.process_time()
    LockRequest("me", (LOCK,), query="SELECT password" + " " * 9_900)
    assert time.process_time() - began_s < 0.1, "the time grew with the square of the blanks"


def test_a_lease_survives_json() -> None:
    request = rules.request("o", ["dw.a/p=1%2E%2E3"], ["dw.b"])
    lease = Lease("id", 1, 0, 0, "o", request.locks, 60.0, NOON)
    copy = Lease.from_json(json.loads(json.dumps(lease.to_json())))
    assert copy == lease
    assert copy.since == NOON
    assert Lease("id", 1, 0, 0, "o", request.locks[::-1], 60.0, NOON) == lease, "a metastore lists them as it likes"


@pytest.mark.parametrize(
    "data",
    [
        *(None, {}, "lease", 7, LEASE.to_json() | {"token": "x"}, LEASE.to_json() | {"since": "noon"}),
        *(LEASE.to_json() | {"locks": locks} for locks in ({"dw": "Q"}, {"dw.t/dt=": "S"}, ["dw"], None)),
    ],
)
def test_what_is_not_a_lease_is_refused(data: Any) -> None:
    with pytest.raises(InvalidRequest, match="not a lease"):
        Lease.from_json(data)


def test_holders_and_blockers_say_who_and_what() -> None:
    ours = Holder(LOCK.object, LOCK.mode, "dag/run/task", NOON, "id-1")
    hives = Holder(LOCK.object, LockMode.SHARED, "root_2013", NOON)
    assert str(ours) == (
        "dag/run/task (lease id-1) holds dw.flights/dt=2013-01-01 EXCLUSIVE since 2013-01-01 12:00:00Z"
    )
    assert str(hives) == "root_2013 (Hive) holds dw.flights/dt=2013-01-01 SHARED since 2013-01-01 12:00:00Z"
    assert str(Blocker("b", LOCK.object, LOCK.mode, waiting=True)) == (
        "b waits ahead for dw.flights/dt=2013-01-01 EXCLUSIVE"
    )
