"""What the settings of a Hive show about tables, without a Hive."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from airflow_hivelock.locks import LockManager, LockObject
from airflow_hivelock.locks.backend import Capabilities, NamespaceUse
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.hive.coverage import check
from airflow_hivelock.locks.hive.properties import CONCURRENCY, EXTERNAL, LOCK_MANAGER, NAMESPACE, TXN_MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.hive.catalog import Catalog


class Hive:
    settings_of = "a test"

    def __init__(self, locks_external: str | None) -> None:
        self._told = {TXN_MANAGER: "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager", EXTERNAL: locks_external}

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        return {name: self._told.get(name) for name in wanted}


@pytest.mark.parametrize("locks_external", ["true", "false", None])
def test_an_external_table_is_warned_of_unless_hive_locks_such_tables(locks_external: str | None) -> None:
    table = Table(table_type="EXTERNAL_TABLE")
    catalog = cast("Catalog", SimpleNamespace(table=lambda _: table, version=lambda: "4.0.1"))
    manager = cast("LockManager", SimpleNamespace(backend=None, capabilities=MetastoreBackend.capabilities))
    told = [str(finding) for finding in check(manager, Hive(locks_external), [LockObject("dw", "raw")], catalog)]
    unlocked = locks_external != "true"
    assert any("dw.raw is external" in text for text in told) is unlocked
    assert any("do not lock external tables" in text for text in told) is unlocked


OWN = NamespaceUse("/hive_own")
USED = NamespaceUse("/hive_used", hives=2, objects=True)


@pytest.mark.parametrize(
    ("namespaces", "kind", "said"),
    [
        ([replace(OWN, hives=3, objects=True)], "ok", "Hive has 3 locks there now"),
        ([replace(OWN, made_here=True)], "error", "Hive has never locked below /hive_own in this ZooKeeper"),
        (
            [replace(OWN, made_here=True, objects=True)],
            "error",
            "Hive has never locked below /hive_own in this ZooKeeper",
        ),
        ([replace(OWN, made_here=True), USED], "error", "and it locks below /hive_used"),
        ([replace(OWN, made_here=True), USED, replace(USED, path="/b")], "error", "below /hive_used and /b"),
        ([OWN, USED], "error", "and it locks below /hive_used"),
        ([OWN], "warning", "No server of Hive was asked"),
        ([replace(OWN, objects=True), USED], "warning", "No server of Hive was asked"),
        ([replace(OWN, hives=1, objects=True), USED], "ok", "Hive locks below /hive_own"),
    ],
)
def test_what_a_zookeeper_tells_without_a_metastore(namespaces: list[NamespaceUse], kind: str, said: str) -> None:
    (finding,) = check(zookeeper(namespaces))
    assert (finding.kind, said in finding.text) == (kind, True), finding


def test_a_table_that_no_metastore_can_describe_is_reported() -> None:
    first, second = check(zookeeper([OWN]), tables=[LockObject("dw", "flightz")])
    assert (first.kind, second.kind) == ("warning", "warning")
    assert "dw.flightz was not checked, because no metastore is named" in second.text


def test_a_metastore_does_not_know_in_which_namespace_a_hiveserver2_locks() -> None:
    class Metastore(Hive):
        def version(self) -> str:
            return "4.0.1"

        def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
            return {name: IN_ZOOKEEPER.get(name) for name in wanted}

    class HiveServer2(Hive):
        def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
            return {name: IN_ZOOKEEPER.get(name) for name in wanted}

    manager = zookeeper([replace(OWN, made_here=True)])
    assert [finding.kind for finding in check(manager, Metastore(None))] == ["ok", "error", "ok"]
    assert [finding.kind for finding in check(manager, HiveServer2(None))] == ["ok"]


def test_a_hive_that_locks_nothing_is_no_error_where_it_would_not_see_these_locks_anyhow() -> None:
    """On EMR as it comes, PostgreSQL is what is recommended."""

    class Off(Hive):
        def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
            return dict.fromkeys(wanted) | {CONCURRENCY: "false"}

    assert [finding.kind for finding in check(zookeeper([OWN]), Off(None))] == ["error"]
    blind = cast("LockManager", SimpleNamespace(backend=None, capabilities=Capabilities()))
    assert [finding.kind for finding in check(blind, Off(None))] == ["warning"]


IN_ZOOKEEPER = {
    CONCURRENCY: "true",
    TXN_MANAGER: "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager",
    LOCK_MANAGER: "org.apache.hadoop.hive.ql.lockmgr.zookeeper.ZooKeeperHiveLockManager",
    NAMESPACE: "hive_own",
}


def zookeeper(namespaces: list[NamespaceUse]) -> LockManager:
    backend = SimpleNamespace(namespaces=lambda: namespaces, namespace=namespaces[0].path)
    return cast("LockManager", SimpleNamespace(backend=backend, capabilities=Capabilities(seen_by_hive=True)))
