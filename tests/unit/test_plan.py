"""The planner: a reader and a writer of the same data conflict on some object, and block no other work."""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.hive.catalog import Table, connect_catalog
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan import check_names, plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class FakeCatalog:
    """A catalog with given tables, which counts the questions."""

    tables: dict[str, Table]
    existing: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def table(self, table: LockObject) -> Table | None:
        self.asked.append(str(table))
        return self.tables.get(str(table))

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return (partition for partition in map(LockObject.parse, self.existing) if partition.is_below(below))

    def names(self, database: str = "") -> list[str]:
        if not database:
            return ["dw", "shop"]
        return [name.removeprefix(f"{database}.") for name in self.tables if name.startswith(f"{database}.")]


HOURS = [f"dw.flights/dt=2013-01-0{day}/hr={hour}" for day in (1, 2) for hour in (1, 2)]
CATALOG = FakeCatalog(
    {
        "dw.flights": Table(("dt", "hr")),
        "dw.delays": Table(("dt",), provider="parquet"),
        "dw.numbered": Table(("hr",), partition_types=("int",)),
        "dw.planes": Table(),
        "dw.recent": Table(table_type="VIRTUAL_VIEW"),
    },
    HOURS,
)


def planned(
    reads: list[str], writes: list[str], catalog: FakeCatalog | None = CATALOG, unpartitioned: tuple[str, ...] = ()
) -> tuple[list[str], list[str]]:
    shared, exclusive = plan(reads, writes, catalog, unpartitioned)
    return [str(target) for target in shared], [str(target) for target in exclusive]


@pytest.mark.parametrize(
    ("read", "shared"),
    [
        (HOURS[0], [HOURS[0]]),
        ("dw.flights/dt=2013-01-09/hr=1", ["dw.flights/dt=2013-01-09/hr=1"]),
        ("dw.flights/dt=2013-01-01", ["dw.flights/dt=2013-01-01", *HOURS[:2]]),
        ("dw.flights", ["dw.flights", *HOURS]),
        ("dw.planes", ["dw.planes"]),
        ("dw", ["dw"]),
    ],
)
def test_a_reader_shares_what_it_reads_and_the_partitions_below(
    read: str, shared: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert planned([read], []) == (shared, [])
    assert not caplog.records


@pytest.mark.parametrize(
    ("write", "exclusive"),
    [
        (HOURS[0], HOURS[0]),
        ("dw.flights/dt=2013-01-01", "dw.flights/dt=2013-01-01"),
        ("dw.flights", "dw.flights"),
        ("dw.planes", "dw.planes"),
        ("dw", "dw"),
    ],
)
def test_a_writer_excludes_from_what_it_writes(write: str, exclusive: str, caplog: pytest.LogCaptureFixture) -> None:
    assert planned([], [write]) == ([], [exclusive])
    assert planned([], [write], None) == ([], [exclusive])
    assert not caplog.records


def test_a_partition_of_sparks_own_format_is_written_under_the_whole_table(caplog: pytest.LogCaptureFixture) -> None:
    assert planned([], ["dw.delays/dt=2013-01-01..2013-01-31"]) == ([], ["dw.delays"])
    assert [record.getMessage() for record in caplog.records] == [
        "dw.delays is locked EXCLUSIVE as a whole: writers of a parquet table disturb each other, even in different partitions"
    ]
    assert planned(["dw.delays/dt=2013-01-01"], []) == (["dw.delays/dt=2013-01-01"], [])


def test_a_table_whose_partitions_cannot_be_listed_is_read_alone(caplog: pytest.LogCaptureFixture) -> None:
    assert planned(["dw.flights", "dw.flights/dt=1"], [], None) == (["dw.flights/dt=1"], ["dw.flights"])
    assert "or unpartitioned=['dw.flights'] if it has none" in caplog.text
    caplog.clear()
    assert planned(["dw.flights"], [], None, ("DW.Flights",)) == (["dw.flights"], [])
    assert not caplog.records


@pytest.mark.parametrize("read", ["dw.flights", "dw.flights/dt=2013-01-01"])
def test_too_many_partitions_to_list_are_read_alone(read: str, caplog: pytest.LogCaptureFixture) -> None:
    below = [name for name in HOURS if name.startswith(read)]
    assert len(plan([read], [], CATALOG, limit=len(below))[0]) == len(below) + 1
    assert not caplog.records
    assert plan([read], [], CATALOG, limit=len(below) - 1) == ([], [LockObject.parse(read)])
    assert f"more than {len(below) - 1} partitions; name those" in caplog.text


TARGETS = ["dw.flights", "dw.flights/dt=2013-01-01", "dw.flights/dt=2013-01-02", *HOURS]


@given(st.sampled_from(TARGETS), st.sampled_from(TARGETS), st.sampled_from([0, 1, 10_000]))
def test_a_reader_and_a_writer_of_the_same_data_exclude_each_other(read: str, write: str, limit: int) -> None:
    reader = rules.request("reader", *plan([read], [], CATALOG, limit=limit))
    writer = rules.request("writer", *plan([], [write], CATALOG, limit=limit))
    one, other = LockObject.parse(read), LockObject.parse(write)
    overlap = one == other or one.is_below(other) or other.is_below(one)
    assert bool(queueing.conflicts(reader.locks, writer.locks)) is overlap


@given(st.sampled_from(TARGETS))
def test_a_reader_that_can_list_nothing_excludes_every_writer(write: str) -> None:
    reader = rules.request("reader", *plan(["dw.flights"], []))
    writer = rules.request("writer", *plan([], [write]))
    assert queueing.conflicts(reader.locks, writer.locks)


@given(st.lists(st.sampled_from(TARGETS)), st.lists(st.sampled_from(TARGETS)))
def test_planning_again_gives_the_same(reads: list[str], writes: list[str]) -> None:
    shared, exclusive = planned(reads, writes)
    assert (shared, exclusive) == planned(reads[::-1], writes[::-1])
    assert len(set(shared)) == len(shared)
    assert len(set(exclusive)) == len(exclusive)


def test_what_is_read_and_written_is_locked_once_and_exclusive() -> None:
    request = rules.request("o", *plan([HOURS[0]], [HOURS[0]], CATALOG))
    assert [str(lock) for lock in request.locks if str(lock.object) == HOURS[0]] == [f"{HOURS[0]} EXCLUSIVE"]


def test_a_range_asks_the_catalog_once() -> None:
    catalog = FakeCatalog({"dw.daily": Table(("dt",))})
    assert len(plan([], ["dw.daily/dt=2013-01-01..2013-12-31"], catalog)[1]) == 365
    assert catalog.asked == ["dw.daily"]


@pytest.mark.parametrize("kind", ["reads", "writes"])
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("dw.flights/hr=01", "partitioned by dt=…/hr=…, in this order"),
        ("dw.flights/hr=01/dt=1", "partitioned by dt=…/hr=…, in this order"),
        ("dw.flights/day=1", "partitioned by dt=…/hr=…, in this order"),
        ("dw.flights/dt=1/hr=1/min=1", "partitioned by dt=…/hr=…, in this order"),
        ("dw.planes/dt=1", "dw.planes has no partitions; name the table itself"),
        ("dw.numbered/hr=x", "hr is of type int, and 'x' is not a valid int"),
        ("dw.flights/", "ends in '/'"),
    ],
)
def test_a_name_that_the_catalog_contradicts_is_refused(kind: str, name: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        plan([name] if kind == "reads" else [], [name] if kind == "writes" else [], CATALOG)


def test_numbers_as_hive_keeps_them_are_accepted() -> None:
    assert len(plan([], ["dw.numbered/hr=0..23"], CATALOG)[1]) == 24
    assert plan([], ["dw.numbered/hr=00..23"], CATALOG) == plan([], ["dw.numbered/hr=0..23"], CATALOG)


@pytest.mark.parametrize(
    ("reads", "writes", "complaint"),
    [
        (["dw.flihgts/dt=2013-01-01"], [], "dw.flihgts: there is no such table to read; did you mean dw.flights?"),
        (
            ["dw.qqq"],
            ["dw.planes"],
            "dw.qqq: there is no such table to read. If this task creates it, add it to writes",
        ),
        (["shopp.sales"], [], "shopp.sales: there is no database shopp; did you mean shop?"),
        ([], ["shopp.sales/dt=1"], "shopp.sales: there is no database shopp; did you mean shop?"),
        (["shopp"], [], "shopp: there is no database shopp; did you mean shop?"),
        ([], ["qqq.t"], "there is no database qqq. If this task creates it, add it to writes: writes=['qqq']"),
    ],
)
def test_a_name_that_does_not_exist_and_cannot_be_meant_is_refused(
    reads: list[str], writes: list[str], complaint: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(complaint)):
        planned(reads, writes)
    plan(reads, writes)  # without a metastore a name is only a name


def test_a_table_that_the_task_may_make_is_warned_of_and_locked(caplog: pytest.LogCaptureFixture) -> None:
    assert planned([], ["dw.flihgts/dt=2013-01-01..2013-01-09"])[1][0] == "dw.flihgts/dt=2013-01-01"
    said = "dw.flihgts: there is no such table to write; did you mean dw.flights? It is locked, because the job can create it"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert planned(["dw.stage"], ["dw.stage"]) == (["dw.stage"], ["dw.stage"])
    assert planned(["new.t"], ["new", "new.t"]) == (["new.t"], ["new", "new.t"])


def test_a_table_that_is_declared_is_taken_to_exist(caplog: pytest.LogCaptureFixture) -> None:
    assert planned(["dw.elsewhere"], [], unpartitioned=("dw.elsewhere",)) == (["dw.elsewhere"], [])
    assert plan(["dw.parts/c=1"], ["x.parts/c=1"], CATALOG, partition_columns={"dw.parts": ["c"], "x.parts": ["c int"]})
    assert not caplog.records


@pytest.mark.parametrize(
    ("reads", "options", "complaint"),
    [
        (["dw.t/c='eu'"], {}, "write 'c=%27eu%27'"),
        ("dw.t", {}, "must be a list of names"),
        (["dw.t/x=1"], {"partition_columns": {"dw.t": ["c"]}}, "partitioned by c=…"),
        (["dw.t/x=1"], {"unpartitioned": ["dw.t"]}, "has no partitions"),
        ([], {"partition_columns": {"dw.t": ["c strng"]}}, "'strng' is not a type"),
    ],
)
def test_what_no_catalog_would_make_right_is_refused_without_one(
    reads: list[str], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        check_names(reads, [], **options)
    check_names(["dw.t/c=07"], ["dw.t/c=2024-2-9"], partition_columns={"dw.t": ["c"]})  # a catalog may know the types


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ("dw.flights", "partitioned by dt/hr; remove it from unpartitioned"),
        ("dw", "is not a table"),
        ("dw.planes/dt=1", "is not a table"),
    ],
)
def test_a_wrong_declaration_is_refused(declared: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        planned(["dw.flights"], [], unpartitioned=(declared,))


def test_a_partition_of_a_table_declared_unpartitioned_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no partitions"):
        planned([], ["dw.planes/dt=1"], None, ("dw.planes",))


def test_one_name_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"must be a list of names, as in \['dw.t'\]"):
        plan("dw.t", [])


def test_a_view_says_that_it_protects_nothing_below(caplog: pytest.LogCaptureFixture) -> None:
    assert planned(["dw.recent"], []) == (["dw.recent"], [])
    assert "does not protect the tables in its query" in caplog.text


@pytest.mark.parametrize(
    "uri", ["", "host:9083", "http://host", "thrift://", "thrift://host:port", "thrift://a:9083,http://b:9083"]
)
def test_what_is_not_a_metastore_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequest, match="thrift://host:9083"):
        connect_catalog(uri)


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hmsclient", None)
    with pytest.raises(HiveLockError, match=r"pip install 'airflow-hivelock\[metastore\]'"):
        connect_catalog("thrift://host")


def test_a_silent_metastore_is_given_up_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match=f"metastore {uri} did not answer"):
            connect_catalog(uri, timeout_s=0.1).table(LockObject("dw", "t"))
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(5)
            while connection.recv(4096):
                pass  # to the end of the stream: the client has closed its socket


@pytest.fixture(scope="module")
def metastore_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from hmsclient import HMSClient
    from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
    from hmsclient.genthrift.hive_metastore.ttypes import (
        Database,
        FieldSchema,
        Partition,
        SerDeInfo,
        StorageDescriptor,
    )  # fmt: skip
    from hmsclient.genthrift.hive_metastore.ttypes import Table as HiveTable

    from tests.support.servers import Metastore

    def storage(path: Path) -> StorageDescriptor:
        return StorageDescriptor(
            cols=[FieldSchema("a", "int")], location=path.as_uri(), serdeInfo=SerDeInfo(parameters={}), parameters={}
        )

    home = tmp_path_factory.mktemp("catalog")
    with Metastore(home) as server, HMSClient(host="127.0.0.1", port=server.port) as client:
        client.create_database(Database("dw", locationUri=home.as_uri()))
        tables = {"events": ["day:date", "hr:int", "kind:string"], "parquet": ["dt:string"], "plain": []}
        for name, columns in tables.items():
            client.create_table(
                HiveTable(
                    dbName="dw",
                    tableName=name,
                    tableType="MANAGED_TABLE",
                    sd=storage(home / name),
                    partitionKeys=[FieldSchema(*column.split(":")) for column in columns],
                    parameters={"spark.sql.sources.provider": "PARQUET"} if name == "parquet" else {},
                )
            )
        for number, kind in enumerate(("a+b", "1..3", "x=y/z", "", "x-SHARED-1")):
            values = ["2013-01-02" if kind == "x-SHARED-1" else "2013-01-01", "4", kind]
            partition = Partition(values=values, dbName="dw", tableName="events", sd=storage(home / f"events{number}"))
            ThriftHiveMetastore.Client.add_partition(client, partition)
        yield server.uri


@pytest.mark.integration
def test_a_real_metastore_knows_tables_and_partitions(metastore_uri: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"127.0.0.1:{closed.getsockname()[1]}"
    catalog = connect_catalog(f"thrift://{away},{metastore_uri}")
    assert catalog.table(LockObject("dw", "nope")) is None
    assert catalog.table(LockObject("nope", "nope")) is None
    assert catalog.table(LockObject("dw", "plain")) == Table()
    assert catalog.table(LockObject("dw", "parquet")) == Table(("dt",), "parquet", partition_types=("string",))
    columns = ("day", "hr", "kind")
    assert catalog.table(LockObject("dw", "events")) == Table(columns, partition_types=("date", "int", "string"))
    day = LockObject.parse("dw.events/day=2013-01-01")
    values = [partition.partition[2][1] for partition in catalog.partitions(day)]
    assert sorted(values) == ["", "1..3", "a+b", "x=y/z"]
    with pytest.raises(InvalidRequest, match=r"partition 'day=2013-01-02/hr=4/kind=x-SHARED-1' of dw.events"):
        list(catalog.partitions(LockObject("dw", "events")))
