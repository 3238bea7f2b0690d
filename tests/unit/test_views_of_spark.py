"""Views that Spark created: their columns can have other names than those of their query."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.hive.catalog import MetastoreCatalog
from airflow_hivelock.locks.plan import plan_statements
from airflow_hivelock.spark.connect_tables import ConnectTables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.hive.catalog import Catalog

DAYS = ["dt=2013-01-01", "dt=2013-01-02"]
BOTH = [f"dw.t/{day}" for day in DAYS]


def answer(asked: str, columns: str, gives: str, text: str) -> list[tuple[str, str | None]]:
    """What Spark answers to a question of ConnectTables."""
    if asked.startswith("SHOW PARTITIONS"):
        return [(day, None) for day in DAYS]
    if "`t`" in asked:
        return [
            ("x", "string"),
            ("dt", "string"),
            ("# Partition Information", ""),
            ("# col_name", "data_type"),
            ("dt", "string"),
            ("", ""),
            ("# Detailed Table Information", ""),
            ("Type", "MANAGED"),
        ]
    return [
        *((name, "string") for name in columns.split()),
        ("", ""),
        ("# Detailed Table Information", ""),
        ("Type", "VIEW"),
        ("View Text", text),
        ("View Catalog and Namespace", "spark_catalog.dw"),
        ("View Query Output Columns", gives),
    ]


@pytest.mark.parametrize("gives", ["[`x`, `dt`]", "[x, dt]"], ids=["Spark 4", "Spark 3.5"])
@pytest.mark.parametrize(("condition", "days"), [("day = '2013-01-01'", BOTH[:1]), ("dt = '2013-01-01'", BOTH)])
def test_a_condition_is_on_the_column_behind_the_views_name(gives: str, condition: str, days: list[str]) -> None:
    assert read(condition, "dt day", gives, "select x, dt from t -- renamed") == days


@pytest.mark.parametrize(
    ("columns", "gives", "text"),
    [
        ("dt day z", "[x, dt, coalesce(x, 1)]", "select x, dt, coalesce(x, 1) from t"),
        ("dt day", "[`x`, `X`]", "select x, dt as X from t"),
    ],
    ids=["a comma in a name", "one name twice"],
)
def test_no_condition_counts_if_the_columns_are_not_certain(columns: str, gives: str, text: str) -> None:
    assert read("dt = '2013-01-01'", columns, gives, text) == BOTH
    assert read("day = '2013-01-01'", columns, gives, text) == BOTH


def test_names_with_backticks_and_commas() -> None:
    gives, text = "[`x, y`, `p``q`]", "select x as `x, y`, dt as `p``q` from t"
    assert read("day = '2013-01-01'", "dt day", gives, text) == BOTH[:1]


@pytest.mark.parametrize(
    "odd",
    [
        {"view.query.out.numCols": "2"},
        {"view.query.out.numCols": "x"},
        {"view.query.out.numCols": str(10**18)},
        {"view.catalogAndNamespace.numParts": "two"},
        {"view.resolutionPath": '[["spark_catalog"]]'},
    ],
)
def test_properties_that_are_not_sparks_are_refused_with_the_name_of_the_view(odd: dict[str, str]) -> None:
    """ALTER VIEW … SET TBLPROPERTIES takes any text."""
    with pytest.raises(InvalidRequest, match=r"the view dw\.v .*Create the view again"):
        plan_statements("select * from dw.v", metastore(odd))


@pytest.mark.parametrize("source", ["metastore", "Spark Connect"])
def test_a_view_is_read_from_the_database_of_its_path(source: str) -> None:
    assert path_of(source, "other") == ["dw.v", "other.t"]
    with pytest.raises(
        InvalidRequest, match="the view v can be in several databases: other, dw; name reads and writes"
    ):
        path_of(source, "other", "dw")


def path_of(source: str, *databases: str) -> list[str]:
    """The locks of a query of a view with these databases in its path."""
    if source == "metastore":
        path = json.dumps([["system", "builtin"], *(["spark_catalog", each] for each in databases)])
        catalog: Catalog = metastore({"view.resolutionPath": path}, "select * from t")
    else:
        path = ", ".join(["system.builtin", *(f"spark_catalog.{each}" for each in databases)])
        rows = [*answer("", "x", "[`x`]", "select x from t"), ("Table", "v"), ("SQL Path", path)]
        catalog = Session(lambda asked: rows if "`v`" in asked else [])
    return [str(each) for each in plan_statements("select * from dw.v", catalog)[0]]


def metastore(parameters: dict[str, str], text: str = "select 1") -> MetastoreCatalog:
    """A metastore with the view dw.v alone."""

    @contextmanager
    def client() -> Iterator[Any]:
        found = {"get_table_req": lambda asked: SimpleNamespace(table=view if asked.tblName == "v" else None)}
        yield SimpleNamespace(**found, get_all_tables=lambda _: ["v"])

    shown = SimpleNamespace(inputFormat=None, cols=[])
    names = {"dbName": "dw", "tableName": "v", "viewExpandedText": text, "viewOriginalText": ""}
    kept = {"tableType": "VIRTUAL_VIEW", "partitionKeys": [], "parameters": parameters, "sd": shown, **names}
    view = SimpleNamespace(**kept)
    return MetastoreCatalog(SimpleNamespace(client=client))  # type: ignore[arg-type]


class Session(ConnectTables):
    def names(self, database: str = "", like: str = "*") -> list[str]:
        return ["v"] if database == "other" else ["t", "v"]


def read(condition: str, columns: str, gives: str, text: str) -> list[str]:
    """The partitions that a query of the view locks."""
    catalog = Session(lambda asked: answer(asked, columns, gives, text))
    reads, _ = plan_statements(f"select * from dw.v where {condition}", catalog)
    return [str(each) for each in reads if each.partition]
