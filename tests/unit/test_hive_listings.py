"""What Hive and its metastore may list, of any version, and what our own requests say of themselves in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import ShowLocksResponseElement
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backends.hiveserver2 import listing
from airflow_hivelock.locks.backends.metastore import row
from airflow_hivelock.locks.backends.metastore.row import COLUMN_CHARS, Metadata, known_as
from airflow_hivelock.locks.model import LockMode

NOW_MS = 1_795_332_443_535
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
HEADER = (
    *("Lock ID", "Database", "Table", "Partition", "State", "Blocked By", "Type", "Transaction ID"),
    *("Last Heartbeat", "Acquired At", "User", "Hostname", "Agent Info"),
)  # fmt: skip


def element(**fields: Any) -> ShowLocksResponseElement:
    given = {"lockid": 7, "dbname": "dw", "tablename": "t", "state": row.ACQUIRED, "type": 3, "acquiredat": NOW_MS}
    return ShowLocksResponseElement(**given | fields)


@pytest.mark.parametrize(
    ("kind", "mode", "note"),
    [
        (1, LockMode.SHARED, ""),
        (2, LockMode.SHARED, "SHARED_WRITE"),
        (3, LockMode.EXCLUSIVE, ""),
        (4, LockMode.EXCLUSIVE, "EXCL_WRITE"),
        (9, LockMode.EXCLUSIVE, "LockType 9"),
    ],
)
def test_a_lock_type_that_the_client_does_not_know_is_shown(kind: int, mode: LockMode, note: str) -> None:
    parsed = row.parse(element(type=kind, agentInfo="hive_1"))
    assert parsed is not None
    holder = parsed.holder(300)
    assert (holder.mode, holder.query, holder.owner, holder.since, holder.expires) == (mode, note, "hive_1", NOW, None)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"partname": "country=US"}, "dw.t/country=US"),
        ({"partname": "a=x-SHARED-1"}, "dw.t"),
        ({"tablename": "t$history", "partname": "a=1"}, "dw"),
        ({"tablename": None}, "dw"),
        ({"dbname": "no database of ours"}, None),
    ],
)
def test_a_name_that_cannot_be_locked_here_is_shown_as_what_it_lies_in(
    names: dict[str, Any], shown: str | None
) -> None:
    parsed = row.parse(element(**names))
    assert (parsed and str(parsed.lock.object)) == shown
    cells = [f"{element(**names).__dict__.get(name) or 'NULL'}" for name in ("dbname", "tablename", "partname")]
    listed = list(listing.parse([HEADER, ("7.1", *cells, "ACQUIRED", "", "EXCLUSIVE", *[""] * 6)]))
    assert [str(holder.object) for holder, _ in listed] == ([shown] if shown else [])


def test_hive_3_lower_cases_the_values_of_partitions() -> None:
    theirs = row.parse(element(partname="country=us"))
    mine = row.parse(element(lockid=8, partname="country=US"))
    assert mine is not None
    assert theirs is not None
    assert row.Conflicts([mine], excl_write=True)(theirs)
    assert rules.folded(mine.lock.object) == theirs.lock.object


@pytest.mark.parametrize("held", ["country=US", "country=us"])
def test_a_sensor_sees_a_lock_that_hive_3_lists_in_lower_case(held: str) -> None:
    listed = row.parse(element(partname=held))
    assert listed is not None
    wanted = rules.request("sensor", reads=["dw.t/country=US"])
    assert rules.excluder(rules.leaves(wanted))(listed.lock)


@pytest.mark.parametrize(("again", "shown"), [(True, "dw.t/a=x%3Ay%25"), (False, "dw.t/a=x%253Ay%2525")])
def test_hive_4_escapes_the_names_of_partitions_again(again: bool, shown: str) -> None:
    lines = [("5.1", "dw", "t", "a=x%253Ay%2525", "ACQUIRED", "", "EXCLUSIVE", *[""] * 6)]
    assert [str(holder.object) for holder, _ in listing.parse(lines, lambda: again)] == [shown]


@given(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=300),
    st.text(max_size=200),
    st.integers(0),
)
def test_metadata_survive_the_columns_and_ends_no_string_of_sql(owner: str, query: str, attempt: int) -> None:
    metadata = Metadata(owner, attempt % 1000, 300.0, "0123abcd", "89abcdef", query)
    columns = metadata.columns
    for text in columns.values():
        assert len(text) <= COLUMN_CHARS
        assert text.isascii()
        assert not set("'\"\\;`") & set(text)
    read = Metadata.parse(columns["user"], columns["hostname"], columns["agentInfo"])
    assert read is not None
    assert (read.owner, read.attempt, read.nonce, read.named) == (
        known_as(owner),
        metadata.attempt,
        "0123abcd",
        "89abcdef",
    )


@pytest.mark.parametrize("info", [None, "", "Unknown", "hive_20260101_1", "hivelock/2 a=1 s=300 n=1 r=1 x"])
def test_what_is_not_ours_has_no_metadata(info: str | None) -> None:
    assert Metadata.parse("ann", "gateway", info) is None


@pytest.mark.parametrize(
    ("user", "seconds"),
    [("%0A%1b[31mann", "300"), ("ann", "0"), ("ann", "1e99")],
    ids=["escapes", "no time", "for ever"],
)
def test_a_forged_lock_of_ours_is_a_lock_of_another_client(user: str, seconds: str) -> None:
    assert Metadata.parse(user, "gateway", f"hivelock/1 a=1 s={seconds} n=x r= ") is None


def test_the_metastores_listing_is_read_with_a_header_and_without() -> None:
    lines = [
        ("5.1", "dw", "t", "dt=1", "ACQUIRED", " ", "SHARED_READ", "0", "0", f"{NOW_MS}", "ann", "gw", "hive_1"),
        ("6.1", "dw", "t", "NULL", "WAITING", "5.1", "EXCL_WRITE", "12", "0", " ", "bob", "gw", "hive_2"),
        ("7.1", "dw", "t", "NULL", "WAITING", "6.1", "EXCLUSIVE", "NULL", f"{NOW_MS}", None, "cy", "gw", "NULL"),
    ]
    for rows in (lines, [HEADER, *lines]):
        (held, _), (second, _), (third, _) = parsed = list(listing.parse(rows))
        assert [waiting for _, waiting in parsed] == [False, True, True]
        assert (str(held.object), held.mode, held.owner, held.since) == ("dw.t/dt=1", LockMode.SHARED, "hive_1", NOW)
        assert (second.mode, second.query) == (LockMode.EXCLUSIVE, "EXCL_WRITE, transaction 12")
        assert (third.owner, third.mode) == ("cy", LockMode.EXCLUSIVE)
        waiter = listing.waiter(7, parsed)
        assert (waiter.position, [by.owner for by in waiter.blocked_by]) == (2, ["hive_2", "hive_1"])


def test_a_query_of_several_lines_in_zookeepers_listing_breaks_nothing() -> None:
    rows = [
        ("dw@t@a=x@y/b=2", "SHARED"),
        ("LOCK_QUERYID:hive_1", " "),
        (f"LOCK_TIME:{NOW_MS}", None),
        ("LOCK_MODE:IMPLICIT", None),
        ("LOCK_QUERYSTRING:select 1,", None),
        ("2 from t", None),
        ("dw", "SHARED"),
    ]
    (read, _), (bare, _) = listing.parse(rows)
    assert (str(read.object), read.owner, read.since, read.explicit) == ("dw.t/a=x@y/b=2", "hive_1", NOW, False)
    assert (str(bare.object), bare.owner, bare.explicit) == ("dw", "unknown", None)
