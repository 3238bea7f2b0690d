"""The replaced methods of PySpark: which data they lock for their arguments."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.spark import interception
from airflow_hivelock.spark.holding import NotPlanned
from airflow_hivelock.spark.statements import StatementLocks


def analyzeTable(catalog: Any, tableName: str, noScan: bool = False) -> None:
    pass


def dropView(catalog: Any, viewName: str, ifExists: bool = False) -> None:
    pass


def dropDatabase(catalog: Any, dbName: str, cascade: bool = False) -> None:
    pass


@pytest.mark.parametrize(
    ("original", "args", "kwargs", "locked"),
    [
        (analyzeTable, ("dw.t",), {"noScan": True}, ("dw.t", "")),
        (analyzeTable, (), {"tableName": "dw.t"}, ("dw.t", "")),
        (analyzeTable, (), {"noScan": True, "tableName": "dw.t"}, ("dw.t", "")),
        (dropView, (), {"ifExists": True, "viewName": "dw.v"}, ("dw.v", "")),
        (dropDatabase, (), {"cascade": True, "dbName": "dw"}, ("", "dw")),
    ],
)
def test_a_call_of_the_catalog_locks_its_table_in_any_order_of_arguments(
    monkeypatch: pytest.MonkeyPatch, original: Any, args: Any, kwargs: Any, locked: tuple[str, str]
) -> None:
    locks = Mock(call=Mock(return_value=nullcontext()))
    monkeypatch.setattr(interception, "_locks_of", lambda session: locks)
    method = interception._catalog(writes=True, database=original is dropDatabase)(original)
    method(SimpleNamespace(_sparkSession=None), *args, **kwargs)
    locks.call.assert_called_once_with(None, f"Catalog.{original.__name__}", *locked, True)


class DeltaTable:
    """Delta's class, without the JVM."""

    _spark = SimpleNamespace(_sc="the context")

    def delete(self, condition: str = "") -> str:
        return f"deleted {condition}"

    @classmethod
    def convertToDelta(cls, sparkSession: object, identifier: str) -> str:
        return f"converted {identifier}"


def test_a_change_by_a_class_of_delta_needs_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """``DeltaTable`` changes its table in the JVM, so there is no plan to read."""
    monkeypatch.setitem(sys.modules, "delta", ModuleType("delta"))
    monkeypatch.setitem(sys.modules, "delta.tables", SimpleNamespace(DeltaTable=DeltaTable))
    leases = Mock(has_named_lease=False)
    locks = StatementLocks("the context", Mock(), leases)
    interception.install(locks)
    try:
        with pytest.raises(NotPlanned, match=r"DeltaTable\.delete runs in the JVM"):
            DeltaTable().delete()
        with pytest.raises(NotPlanned, match=r"DeltaTable\.convertToDelta runs in the JVM"):
            DeltaTable.convertToDelta(sparkSession=DeltaTable._spark, identifier="dw.t")
        leases.has_named_lease = True
        assert DeltaTable().delete("id = 1") == "deleted id = 1"
        leases.check.assert_called_once_with()
        assert DeltaTable.convertToDelta(DeltaTable._spark, "dw.t") == "converted dw.t"
    finally:
        interception.remove(locks)
    leases.has_named_lease = False
    assert DeltaTable.convertToDelta(DeltaTable._spark, "dw.t") == "converted dw.t"
    assert DeltaTable().delete() == "deleted "


class Frame:
    """A DataFrame."""

    sparkSession = None


@pytest.mark.parametrize("call", [lambda read, rows: read(None, rows), lambda read, rows: read(None, path=rows)])
def test_a_reader_of_a_dataframe_is_refused(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    """It reads the rows at once, and later as an RDD, which takes no locks."""
    locks = Mock(refuse_later=Mock(side_effect=InvalidRequest("reads dw.t later")))
    monkeypatch.setattr(interception, "_locks_of", lambda session: locks)
    monkeypatch.setattr(interception, "_frame", lambda: Frame)
    original = Mock(__name__="json")
    read = interception._of_rows(original)
    call(read, "/data/new.json")
    assert original.called
    original.reset_mock()
    with pytest.raises(InvalidRequest, match="later"):
        call(read, Frame())
    assert not original.called
