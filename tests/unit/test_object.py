"""Names: what a user writes, what Hive's znodes are called, and what is refused before it gets that far."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from airflow_hivelock.locks.errors import InvalidRequest, RequestTooLarge
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import DEFAULT_PARTITION, MAX_OBJECTS, escape, unescape, unescape_level

TEXT = st.text(st.characters(codec=None) | st.sampled_from("/\\=%.:- \n\x00\x7f\x80[{^éΣİ\U0001f600"), max_size=12)
LEVELS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3)


def expand(name: str) -> list[str]:
    return [str(target) for target in LockObject.parse_all(name)]


@given(TEXT.filter(bool))
def test_unescape_undoes_escape(text: str) -> None:
    assert unescape(escape(text)) == text


@given(TEXT)
def test_an_escaped_value_is_one_component_of_a_path(text: str) -> None:
    assert not set(escape(text)) & set("/=:\"#*?\\\x7f{[]^'\n")


@pytest.mark.parametrize(
    ("value", "escaped"),
    [("2024-01-01 10:00/x=y%z", "2024-01-01 10%3A00%2Fx%3Dy%25z"), ("", "__HIVE_DEFAULT_PARTITION__"), ("é b", "é b")],
)
def test_escapes_as_hive_does(value: str, escaped: str) -> None:
    assert escape(value) == escaped
    assert unescape_level(f"DS={escaped}") == ("ds", value)


@given(LEVELS)
@example([("dt", "1..3")])
@example([("a..b", "x...y")])
@example([("dt", DEFAULT_PARTITION)])
@example([("dt", "\U0001f600")])
@example([("%44T", "%2e%2E")])
@example([("dt", "a  ")])
@example([("dt", "\u2003")])
def test_what_is_accepted_can_be_stored_and_read_back(levels: list[tuple[str, str]]) -> None:
    try:
        target = LockObject("DW", "Flights", tuple(levels))
        # An object is made level by level; that no column is named twice is the name's business.
        assume(len({column for column, _ in target.partition}) == len(levels))
    except InvalidRequest:
        return
    assert LockObject.parse(str(target)) == target
    assert str(LockObject.parse(str(target))) == str(target)
    for component in target.path:
        assert component not in ("", ".", "..")
        assert "/" not in component
        assert zookeeper_takes(component)
        assert not re.search(r"-(SHARED|EXCLUSIVE)-\d+$", component)


def zookeeper_takes(component: str) -> bool:
    """As org.apache.zookeeper.common.PathUtils looks at it: UTF-16 unit by unit."""
    utf_16 = component.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(utf_16[at : at + 2], "big") for at in range(0, len(utf_16), 2)]
    return not any(
        unit <= 0x1F or 0x7F <= unit <= 0x9F or 0xD800 <= unit <= 0xF8FF or 0xFFF0 <= unit <= 0xFFFF for unit in units
    )


PIECES = ("dw.t/dt=", "/hr=", "..", "2013-01-01", "2013-02-29", "00", "7", "%2E", "%", "=", "/", "x", " ", "\n")


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_any_text_is_a_name_or_an_invalid_request(pieces: list[str]) -> None:
    try:
        targets = LockObject.parse_all("dw.t/dt=" + "".join(pieces))
    except InvalidRequest:
        return
    assert all(LockObject.parse(str(target)) == target for target in targets)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("DW", "dw"),
        ("DW.Flights", "dw.flights"),
        ("Spark_Catalog.dw.flights/dt=1", "dw.flights/dt=1"),
        ("dw.flights/DT=2013-01-01/hr=04", "dw.flights/dt=2013-01-01/hr=04"),
        ("dw.t/ts=10:00", "dw.t/ts=10%3A00"),
        ("dw.t/ts=10%3a00", "dw.t/ts=10%3A00"),
        ("dw.t/k=%zz", "dw.t/k=%25zz"),
        ("dw.t/k=A b", "dw.t/k=A b"),
        ("dw.t/k=1%2E%2E3", "dw.t/k=1%2E%2E3"),
        ("dw.t/k=..%2f..", None),
        ("dw.t/k=__HIVE_DEFAULT_PARTITION__", "dw.t/k=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_one_object_has_one_name(name: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(InvalidRequest):
            LockObject.parse(name)
    else:
        assert str(LockObject.parse(name)) == canonical


@pytest.mark.parametrize(
    ("name", "expanded"),
    [
        ("dt=2024-02-28..2024-03-01", ["dt=2024-02-28", "dt=2024-02-29", "dt=2024-03-01"]),
        ("dt=2023-02-28..2023-03-01", ["dt=2023-02-28", "dt=2023-03-01"]),
        ("dt=2012-12-31..2013-01-01", ["dt=2012-12-31", "dt=2013-01-01"]),
        ("dt=9999-12-31..9999-12-31", ["dt=9999-12-31"]),
        ("hr=08..10", ["hr=08", "hr=09", "hr=10"]),
        ("hr=8..10", ["hr=8", "hr=9", "hr=10"]),
        ("hr=0..10", [f"hr={hour}" for hour in range(11)]),
        ("hr=00..00", ["hr=00"]),
        ("dt=2013-01-01..2013-01-02/hr=0..1", [f"dt=2013-01-0{day}/hr={hour}" for day in (1, 2) for hour in (0, 1)]),
    ],
)
def test_a_range_includes_both_ends(name: str, expanded: list[str]) -> None:
    assert expand(f"dw.t/{name}") == [f"dw.t/{level}" for level in expanded]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("dt=2013-01-01..", "not a range"),
        ("dt=..2013-01-01", "not a range"),
        ("dt=..", "not a range"),
        ("dt=a..b", "%2E%2E"),
        ("dt=2013-01-01..2013-01-02..2013-01-03", "not a range"),
        ("dt=2013-02-29..2013-03-01", "not a range"),
        ("dt=2013-W01-1..2013-W01-3", "not a range"),
        ("dt=2013-01-01..31", "not a range"),
        ("dt=2013-01-02..2013-01-01", "ends before it begins"),
        ("hr=2..1", "ends before it begins"),
        ("hr=00..9", "same number of digits"),
        ("hr=9..010", "same number of digits"),
        (f"hr=0..{'9' * 5000}", "not a range"),
        ("hr=٠..٣", "not a range"),
    ],
)
def test_a_range_that_cannot_be_meant_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        LockObject.parse_all(f"dw.t/{name}")


@pytest.mark.parametrize(
    "name",
    ["hr=1..10001", "hr=0..999999999999999999", "dt=0001-01-01..9999-12-31", "dt=2013-01-01..2013-12-31/hr=0..99"],
)
def test_too_many_partitions_are_refused_before_they_are_made(name: str) -> None:
    with pytest.raises(RequestTooLarge, match=r"10,000 .* Lock the table instead"):
        LockObject.parse_all(f"dw.t/{name}")


def test_the_largest_range_is_accepted() -> None:
    assert len(LockObject.parse_all("dw.t/n=1..10000")) == MAX_OBJECTS


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            "/",
            ".",
            "..",
            "dw.",
            ".t",
            "dw..t",
            "dw.t.u",
            "dw/dt=1",
            "dw.t/",
            "dw.t//hr=1",
            "dw.t/dt=1/",
            "dw.t/dt=1 ",
            "dw.t/dt=1\n",
        ),
        *("dw.t/..", "dw.t/../x", "../dw.t", "d w.t", " dw.t", "dw.t ", "dw.t\n", "dw\n.t", "dw\x00", "dw.t/dt=\x00"),
        *("dw.t/dt", "dw.t/dt=", "dw.t/=x", "dw.t/a=b=c", "dw.t/ dt=1", "dw.t/dt =1", "dw.t/dt=1/DT=2"),
        *("dw.t/p=x-SHARED-1", "dw.t/p=x-EXCLUSIVE-0000000000", "dw.t/p=LOCK-SHARED-1", "dw.t/p=%2DSHARED-7"),
        *("dw-x.t", "dw.flights-1", "dw.täbelle", "dw.t/p=\x80", "dw.t/p=\ue000", "dw.t/p=\U0001f600", "dw.t/p=%00"),
    ],
)
def test_a_name_that_no_store_could_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        LockObject.parse_all(name)
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("name", [None, 7, b"dw", ["dw"]])
def test_what_is_not_text_is_refused(name: object) -> None:
    with pytest.raises(InvalidRequest, match="not the name of a lock object"):
        LockObject.parse_all(name)  # type: ignore[arg-type]


def test_a_newline_in_a_value_is_stored_escaped() -> None:
    assert LockObject.parse("dw.t/p=a\nb").path == ("dw", "t", "p=a%0Ab")


def test_what_is_too_long_only_once_it_is_escaped_is_refused() -> None:
    """Its name could be stored, and not be read again."""
    assert len(str(LockObject.parse("dw.t/dt=" + ":" * 3_300))) > 9_900
    with pytest.raises(InvalidRequest, match="longer than 10,000 characters with Hive's escapes"):
        LockObject.parse("dw.t/dt=" + ":" * 3_400)


@pytest.mark.parametrize(
    ("level", "meant"),
    [
        ("region='eu'", "'region=eu'. If the quotes belong to the value, write 'region=%27eu%27'"),
        ('region="eu"', "'region=eu'. If the quotes belong to the value, write 'region=%22eu%22'"),
        ("dt='2013-01-01'..'2013-01-31'", "'dt=2013-01-01..2013-01-31'"),
    ],
)
def test_a_value_in_quotes_is_refused_and_shown_without_them(level: str, meant: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        LockObject.parse_all(f"dw.t/{level}")
    assert f"write a value without quotes, as in {meant}" in str(refused.value)


@pytest.mark.parametrize("value", ["%27eu%27", "o'clock", "'s", "it's'"])
def test_a_quote_that_belongs_to_a_value_is_taken(value: str) -> None:
    assert str(LockObject.parse(f"dw.t/region={value}")) == f"dw.t/region={value.replace(chr(39), '%27')}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dw.a.dt=1", "'dw.a/dt=1'"),
        ("dw.a.dt=1/hr=2", "'dw.a/dt=1/hr=2'"),
        ("dw.a.dt=2013-01-01..2013-01-31", "'dw.a/dt=2013-01-01..2013-01-31'"),
        ("dw.a dt=1", "'dw.a/dt=1'"),
        ("dw@a@dt=1/hr=2", "'dw.a/dt=1/hr=2'"),
        ("dw.a PARTITION (dt='1', hr=2)", "'dw.a/dt=1/hr=2'"),
        ("dw.a.b.c=1", "'dw.flights/dt=2013-01-01'"),
    ],
)
def test_a_partition_that_is_written_otherwise_is_refused_with_its_name(name: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        LockObject.parse_all(name)
    assert hint in str(refused.value)
    assert "catalog" not in str(refused.value)
