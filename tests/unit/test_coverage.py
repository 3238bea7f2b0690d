"""What is told of tables by the settings of a Hive, without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from airflow_hivelock.locks import LockManager, LockObject
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.hive.coverage import EXTERNAL, TXN_MANAGER, check

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
