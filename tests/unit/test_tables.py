"""Two spellings of one partition never give two locks: they become one name, or all but one are refused."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.catalog import Table
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan import plan, plan_statements
from airflow_hivelock.locks.spelling import canonical, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

INTEGERS = ("tinyint", "smallint", "int", "bigint")
KINDS = ("string", "varchar(9)", "char(9)", *INTEGERS, "date", "boolean", "decimal(9,0)", "decimal(9,2)", "double")


@dataclass
class OneTable:
    """``dw.t`` with the one partition column ``c``, and its partitions."""

    kind: str
    existing: tuple[str, ...] = ()

    def table(self, table: LockObject) -> Table | None:
        return Table(("c",), partition_types=(self.kind,)) if str(table) == "dw.t" else None

    def partitions(self, below: LockObject) -> Iterator[LockObject]:
        return (LockObject("dw", "t", (("c", value),)) for value in self.existing)

    def names(self, database: str = "") -> list[str]:
        return ["t"] if database else ["dw"]


def lock(value: str, catalog: OneTable | None, declared: Mapping[str, Sequence[str]] | None = None) -> str | None:
    """The value that a writer of the partition locks; None where it is refused."""
    try:
        _, (found,) = plan([], [LockObject("dw", "t", (("c", value),))], catalog, partition_columns=declared)
    except InvalidRequest:
        return None
    return found.partition[0][1]


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("string", {"2024-2-9": "2024-2-9", "07": "07", "a ": "a ", "": ""}),
        ("varchar(3)", {"a ": "a ", "abcd": None}),
        ("char(3)", {"a": "a  ", "a ": "a  ", "a    ": "a  ", "abcd": None, " a": " a "}),
        (
            "int",
            {"7": "7", "07": "7", "+7": "7", "-07": "-7", "-0": "0", " 7": None, "7.0": None, "x": None, "٣": None},
        ),
        ("int", {"2147483647": "2147483647", "2147483648": None, "-2147483648": "-2147483648", "9" * 5000: None}),
        ("tinyint", {"127": "127", "128": None, "300": None}),
        ("bigint", {"9223372036854775807": "9223372036854775807", "9223372036854775808": None}),
        ("date", {"2024-02-09": "2024-02-09", "2024-2-9": "2024-02-09", "2024-02-30": None, "20240209": None}),
        ("date", {"2024-02-09 10:00:00": None, "2024-02": None, "12024-02-09": None, "0024-2-9": "0024-02-09"}),
        ("boolean", {"true": "true", "FALSE": "false", "t": None, "1": None, "yes": None}),
        ("decimal(5,2)", {"1.25": "1.25", "01.25": "1.25", "+1.25": "1.25", "1.250": "1.25", "1.5": None, "1": None}),
        ("decimal(5,2)", {"1.234": None, "1000.25": None, "x": None, "-0.25": "-0.25", "0": None, "-0.00": None}),
        ("decimal(3,0)", {"1": "1", "01": "1", "1.0": "1", "-0": "0", "1000": None, "0": "0", ".": None}),
        ("decimal(38,18)", {f"{'9' * 20}.{'1' * 18}": f"{'9' * 20}.{'1' * 18}", f"{'9' * 21}.{'1' * 18}": None}),
        (
            "double",
            {"1": "1.0", "1.50": "1.5", "0": "0.0", "-0": None, "1e1": None, "10000000": None, "0.001": "0.001"},
        ),
        ("double", {"0.0009": None, "9999999.5": "9999999.5", "0.1234567890123456": None, "NaN": None}),
        ("float", {"0.1": "0.1", "0.1234567": None}),
        ("timestamp", {"2024-2-9 1:2:3.50": "2024-02-09 01:02:03.5", "2024-02-09 10:00:00": None, "2024-02-09": None}),
        ("timestamp", {"2024-02-09 10:00:00.1234567": None, "2024-02-09 25:00:00.5": None, "x": None}),
        ("", {"2024-02-09": "2024-02-09", "20240209": "20240209", "7": "7", "-7": "-7", "0.5": "0.5", "x": "x"}),
        ("", {"eu": "eu", "1" * 50: "1" * 50, "": "", "true": "true", "1.2.3": "1.2.3", "7L": "7L"}),
        (
            "",
            {"2024-2-9": None, "07": None, "+7": None, "-0": None, "7.0": None, ".5": None, "1e1": None, "TRUE": None},
        ),
        ("", {"a ": None, " a": None, "2024-02-30": None, "2024-02-09 10:00": None, "2024-02-09T10": None}),
        ("binary", {"x": "x", "07": None}),
    ],
)
def test_a_value_is_locked_as_it_is_kept_or_refused(kind: str, kept: dict[str, str | None]) -> None:
    assert {value: lock(value, OneTable(kind)) for value in kept} == kept
    if kind in ("", "binary"):
        assert {value: lock(value, None) for value in kept} == kept
    else:
        assert {value: lock(value, None, {"dw.t": [f"c {kind}"]}) for value in kept} == kept


@st.composite
def spellings(draw: st.DrawFn, kind: str) -> list[str]:
    """Some spellings of one value of a type, as Hive or Spark writes it."""
    count = draw(st.integers(2, 4))
    if kind == "boolean":
        word = draw(st.sampled_from(["true", "false"]))
        return [draw(st.sampled_from([word, word.upper(), word.title()])) for _ in range(count)]
    if kind == "date":
        day = draw(st.dates(min_value=date(1600, 1, 1)))
        forms = [day.isoformat(), f"{day.year}-{day.month}-{day.day}", f"{day.year}-{day.month}-{day.day:02}"]
        return [draw(st.sampled_from([*forms, f"{day} 00:00:00", f"{day}T10:00"])) for _ in range(count)]
    if kind.startswith(("string", "varchar")):
        return [draw(st.text(st.sampled_from("ab 0"), min_size=1, max_size=9))] * count
    if kind.startswith("char"):
        text = draw(st.text(st.sampled_from("ab0"), min_size=1, max_size=5))
        return [text + " " * draw(st.integers(0, 6)) for _ in range(count)]
    whole, fraction = draw(st.integers(-127, 127)), ""
    if kind in ("double", "decimal(9,2)"):
        fraction = draw(st.sampled_from(["", "5", "25", "05"]))
    sign = "-" if whole < 0 else ""
    found = []
    for _ in range(count):
        zeros, after = "0" * draw(st.integers(0, 3)), "0" * draw(st.integers(0, 3))
        point = "" if kind in INTEGERS or not (fraction or after) else f".{fraction}{after}"
        found.append(f"{sign or draw(st.sampled_from(['', '+']))}{zeros}{abs(whole)}{point}")
    return found


@given(st.data(), st.sampled_from(KINDS))
def test_two_spellings_of_one_partition_never_give_two_locks(data: st.DataObject, kind: str) -> None:
    found = data.draw(spellings(kind))
    declared = {"dw.t": [f"c {kind}"]}
    for locks in (
        {lock(value, OneTable(kind)) for value in found},
        {lock(value, None, declared) for value in found},
    ):
        assert len(locks - {None}) <= 1
    if not kind.startswith(("string", "varchar")):
        assert len({lock(value, None) for value in found} - {None}) <= 1


@given(st.data(), st.sampled_from(KINDS))
def test_sql_and_names_lock_the_same(data: st.DataObject, kind: str) -> None:
    found = data.draw(spellings(kind))
    for catalog in (OneTable(kind), None):
        named = {lock(value, catalog) for value in found}
        written = set()
        for value in found:
            sql = f"insert overwrite table dw.t partition (c='{value}') select 1"
            _, (target,) = plan_statements(sql, catalog)
            assert str(LockObject("dw", "t")) in (str(target), str(target.parent))
            written.add(target.partition[0][1] if target.partition else None)
        assert len((named | written) - {None}) <= (1 if catalog or not kind.startswith(("string", "varchar")) else 2)


@given(st.text(max_size=12), st.sampled_from((*KINDS, "timestamp", "float", "")))
def test_what_is_kept_is_its_own_spelling(value: str, kind: str) -> None:
    with suppress(InvalidRequest):
        kept = canonical(value, kind)
        assert canonical(kept, kind) == kept


@pytest.mark.parametrize(("kind", "value"), [("int", "07"), ("date", "x"), ("timestamp", "2024-02-09 10:00:00")])
def test_a_partition_that_exists_under_a_name_is_meant_by_it(kind: str, value: str) -> None:
    assert lock(value, OneTable(kind, (value,))) == value
    assert lock(value, OneTable(kind)) != value


def test_who_reads_a_value_reads_what_exists_in_another_spelling() -> None:
    catalog = OneTable("int", ("07", "8", "9"))
    read = {f"dw.t/c={value}" for value in ("7", "07")}
    for found in (
        plan(["dw.t/c=7"], [], catalog)[0],
        plan_statements("select * from dw.t where c = 7", catalog)[0],
        plan_statements("select * from dw.t where c in (7, 7)", catalog)[0],
        plan_statements("alter table dw.t drop partition (c = 7)", catalog)[1],
    ):
        assert {str(target) for target in found} - {"dw.t"} == read
    assert {str(each) for each in plan(["dw.t"], [], catalog)[0]} == {"dw.t", "dw.t/c=07", "dw.t/c=8", "dw.t/c=9"}
    assert [str(each) for each in plan_statements("select * from dw.t where c = 8", catalog)[0]] == ["dw.t/c=8"]
    days = OneTable("date", ("2024-2-9", "2024-2-10"))
    found, _ = plan_statements("select * from dw.t where c = '2024-02-09'", days)
    assert [str(each) for each in found] == ["dw.t/c=2024-02-09", "dw.t/c=2024-2-9"]


def test_what_is_declared_counts_whatever_the_metastore_says() -> None:
    declared = {"dw.t": ["c string"]}
    assert lock("07", OneTable("int"), declared) == "07"
    assert lock("07", OneTable("int"), {"dw.t": ["c"]}) == "7"
    assert lock("07", None, declared) == "07"


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("date", "2024-02-30", "dw.t/c=2024-02-30: c is of type date, and '2024-02-30' is not a valid date"),
        ("timestamp", "2024-02-09", "Hive stores it as '2024-02-09 00:00:00.0', Spark as '2024-02-09 00:00:00'"),
        ("", "2024-2-9", "dw.t/c=2024-2-9: '2024-2-9' looks like another spelling of '2024-02-09'"),
    ],
)
def test_a_refusal_says_what_is_kept_and_how_to_say_that_it_is_meant(kind: str, value: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)) as refused:
        plan([f"dw.t/c={value}"], [], OneTable(kind))
    assert "partition_columns={'dw.t': ['c string']} uses the value as it is written" in str(refused.value)


def test_a_range_is_of_values_as_they_are_kept() -> None:
    days = ["dw.t/c=2013-01-01..2013-01-31"]
    assert len(plan([], days)[1]) == len(plan([], days, OneTable("date"))[1]) == 31
    hours = [str(hour) for hour in range(24)]
    assert [each.partition[0][1] for each in sorted(plan([], ["dw.t/c=00..23"], OneTable("int"))[1])] == sorted(hours)
    with pytest.raises(InvalidRequest, match=r"'00' looks like another spelling of '0'.*\['c string'\]"):
        plan([], ["dw.t/c=00..23"])
    assert len(plan([], ["dw.t/c=00..23"], partition_columns={"dw.t": ["c string"]})[1]) == 24


@pytest.mark.parametrize(
    ("text", "kind"),
    [("INT", "int"), ("Integer", "int"), ("decimal ( 5 , 2 )", "decimal(5,2)"), ("numeric(5)", "decimal(5,0)"),
     ("decimal", "decimal(10,0)"), ("VARCHAR( 3)", "varchar(3)"), ("double  precision", "double")],
)  # fmt: skip
def test_types_are_written_as_in_hives_ddl(text: str, kind: str) -> None:
    assert type_of(text) == kind


@pytest.mark.parametrize("columns", [["c strng"], ["c", " "], ["c int comment 'x'"], "c int", [], ["c array<int>"]])
def test_a_declaration_that_cannot_be_meant_is_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"partition_columns['dw.t']={columns!r}")):
        plan(["dw.t"], [], partition_columns={"dw.t": columns})
