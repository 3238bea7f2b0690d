"""Real Hive runs statements, up to its locks: what it locked is in ZooKeeper's log, and our plan locks no less."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import LockMode, LockObject
from tests.backends.zookeepers import kazoo
from tests.support.servers import HiveError, HiveSession, Metastore, ZooKeeperServer
from tests.support.servers.other_hiveserver2 import ReleasedHiveServer2
from tests.support.servers.releases import HIVE
from tests.support.sql.cases import CASES, Locks, less
from tests.support.sql.differences import BY_CHOICE, LESS, MORE
from tests.support.sql.warehouse import DATABASE, DDL, PARTITIONS, TABLES
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.hive.catalog import Catalog
    from tests.support.servers.other_hiveserver2 import HiveServer2Client
    from tests.support.sql.cases import Case

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

RELEASE = HIVE or "2.3.10"
"""Of the Hive that runs them; another than in PySpark's jars with ``make test-hives``."""

NAMESPACE = "/hive_zookeeper_namespace/"
STOP, STOPPED = "servers.TellLocks", "LOCKS["
"""Hive calls its hooks once it has its locks: this one ends a statement there, and so changes nothing; what it then says."""

RUN = [case for case in CASES if case.hive != "no"]


@dataclass(frozen=True)
class Servers:
    zookeeper: ZooKeeperServer
    metastore_uri: str
    hive: HiveSession | HiveServer2Client


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    home = tmp_path_factory.mktemp("sql")
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeperServer(home))
        if HIVE:
            server = running.enter_context(ReleasedHiveServer2(home, HIVE, zookeeper=zookeeper))
            found = Servers(zookeeper, server.metastore_uri, running.enter_context(server.session()))
        else:
            metastore = running.enter_context(Metastore(home))
            session = HiveSession(home, zookeeper=zookeeper, metastore=metastore)
            found = Servers(zookeeper, metastore.uri, running.enter_context(session))
        for statement in (*DDL, f"use {DATABASE}"):
            found.hive.run(statement)
        yield found


@pytest.fixture(scope="module")
def locked(servers: Servers, catalog: object) -> dict[Case, Locks | None]:
    """What Hive locked for each statement; None where it refused it before."""
    zookeeper, hive = servers.zookeeper, servers.hive
    hive.run(f"set hive.exec.pre.hooks={STOP}")
    refused = set()
    with kazoo(zookeeper.hosts) as marks:
        for number, case in enumerate(RUN):
            marks.create(f"/statement-{number}")
            try:
                hive.run(case.sql)
            except HiveError as error:
                if STOPPED not in str(error):
                    refused.add(case)
    found: dict[Case, Locks | None] = {case: None if case in refused else {} for case in RUN}
    now: Locks | None = None
    for write in (write for transaction in transactions([zookeeper]) for write in transaction.writes):
        if write.path.startswith("/statement-"):
            now = found[RUN[int(write.path.rpartition("-")[2])]]
        elif now is not None and write.data and "/LOCK-" in write.path:
            name, _, lock = write.path.removeprefix(NAMESPACE).rpartition("/LOCK-")
            if not name.startswith("_dummy"):  # what Hive takes a SELECT without a table to read
                database, *rest = name.split("/", 2)
                now[LockObject.parse(f"{database}.{'/'.join(rest)}" if rest else name)] = LockMode[lock.split("-")[0]]
    return found


def test_the_metastore_knows_the_tables_as_the_warehouse_says(catalog: Catalog) -> None:
    for name, table in TABLES.items():
        found = catalog.table(LockObject.parse(name))
        assert found is not None
        assert (found.partition_columns, found.partition_types) == (table.partition_columns, table.partition_types)
        assert bool(found.view_text) is (found.table_type == table.table_type == "VIRTUAL_VIEW")
        listed = {str(partition) for partition in catalog.partitions(LockObject.parse(name))}
        assert listed == {partition for partition in PARTITIONS if partition.startswith(f"{name}/")}


def test_hive_locks_something_for_each_kind_of_statement(locked: dict[Case, Locks | None]) -> None:
    assert sum(1 for locks in locked.values() if locks) >= 150


def test_we_lock_what_hive_does_and_every_difference_has_its_reason(
    locked: dict[Case, Locks | None], catalog: Catalog
) -> None:
    wrong = []
    for case, theirs in locked.items():
        ours, why = case.planned(catalog), case.in_hive(RELEASE)
        assert ours == case.expected, f"{case.sql}: another plan than with the warehouse of the unit tests"
        if theirs is None:
            fits = why == "refused"
        elif less(ours, theirs):
            fits = why in LESS
        else:
            fits = why in MORE if ours != theirs else not why
        if not fits:
            wrong.append(f"{case.sql}\n  Hive: {theirs}\n  ours: {ours}\n  said: {why}")
    assert not wrong, "\n".join(wrong)


def test_by_hives_table_we_lock_what_hive_does(locked: dict[Case, Locks | None], catalog: Catalog) -> None:
    wrong = []
    for case, theirs in locked.items():
        ours, why = case.planned(catalog, "hive"), case.in_hive(RELEASE)
        if theirs is None or why in {*LESS} - {*BY_CHOICE}:
            continue
        if less(ours, theirs) or (why in ("", *BY_CHOICE) and ours != theirs):
            wrong.append(f"{case.sql}\n  Hive: {theirs}\n  ours: {ours}")
    assert not wrong, "\n".join(wrong)
    assert {case.in_hive(RELEASE) for case in locked} >= set(BY_CHOICE)
