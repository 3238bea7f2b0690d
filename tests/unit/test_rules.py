"""The rules: what excludes what, and that the hierarchy holds although only single objects conflict."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hivelock.locks import queueing, rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import Lock, LockMode, LockObject, LockType, locks_from_json

S, X = LockMode.SHARED, LockMode.EXCLUSIVE

SPECS = [(), (("dt", "1"),), (("dt", "2"),), (("dt", "1"), ("hr", "1")), (("dt", "1"), ("hr", "2"))]
OBJECTS = st.sampled_from(
    [LockObject(database) for database in "ab"]
    + [LockObject(database, table, spec) for database in "ab" for table in "tu" for spec in SPECS]
)
LEAVES = st.lists(OBJECTS, max_size=4)


@given(LEAVES, LEAVES)
def test_written_is_exclusive_and_all_else_is_shared(reads: list[LockObject], writes: list[LockObject]) -> None:
    locks = rules.with_parents(reads, writes)
    expected = {above for leaf in reads + writes for above in (*leaf.parents, leaf)}
    assert {lock.object for lock in locks} == expected
    assert {lock.object for lock in locks if lock.mode is X} == set(writes)


@given(LEAVES, LEAVES)
def test_locks_are_sorted_one_an_object_parents_first(reads: list[LockObject], writes: list[LockObject]) -> None:
    paths = [lock.object.path for lock in rules.with_parents(reads, writes)]
    assert paths == sorted(set(paths))


@given(OBJECTS, OBJECTS, st.booleans())
def test_a_writer_excludes_all_at_and_below_its_object_and_nothing_beside_it(
    written: LockObject, other: LockObject, reading: bool
) -> None:
    theirs = rules.with_parents([other], []) if reading else rules.with_parents([], [other])
    related = other == written or other.is_below(written) or (not reading and written.is_below(other))
    assert bool(queueing.conflicts(rules.with_parents([], [written]), theirs)) is related


def test_a_request_takes_names_ranges_and_objects() -> None:
    request = rules.request("o", ["DW.t/hr=1..2"], [LockObject("dw", "u")])
    assert [str(lock) for lock in request.locks] == [
        *("dw SHARED", "dw.t SHARED", "dw.t/hr=1 SHARED", "dw.t/hr=2 SHARED", "dw.u EXCLUSIVE"),
    ]


@pytest.mark.parametrize("given_", ["dw.t", LockObject("dw", "t")])
def test_one_name_in_place_of_a_list_is_refused(given_: str | LockObject) -> None:
    with pytest.raises(InvalidRequest, match=r"reads='dw.t' must be a list of names, as in \['dw.t'\]"):
        rules.request("o", reads=given_)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dw.t/d=2024-2-9", "dw.t/n=07", "dw.t/n=00..23", "dw.t/a=1/b=TRUE"])
def test_a_name_in_another_spelling_than_hive_keeps_is_refused(name: str) -> None:
    """Otherwise locks on d=2024-2-9 and d=2024-02-09 would both be granted."""
    with pytest.raises(InvalidRequest, match=r"looks like another spelling of .*A LockObject is used"):
        rules.request("o", writes=[name])
    (target, *_) = LockObject.parse_all(name)
    assert rules.request("o", writes=[target]).locks[-1].object == target, "with its types known, it may be right"


def test_a_request_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="asks for no locks"):
        rules.request("o")


def test_what_a_request_was_planned_from_must_be_a_text_that_every_store_keeps_whole() -> None:
    with pytest.raises(InvalidRequest, match="without a NUL"):
        rules.request("o", writes=["dw.t"], named="writes dw.t\0 and more")


@pytest.mark.parametrize(
    ("reads", "writes", "locked"),
    [
        (["dw.t/dt=1"], [], ["dw.t/dt=1 SHARED"]),
        (["dw.t"], ["dw.t/dt=1"], ["dw.t SHARED", "dw.t/dt=1 EXCLUSIVE"]),
        (["dw.u"], ["dw.t/dt=1"], ["dw.t/dt=1 EXCLUSIVE", "dw.u SHARED"]),
        (["dw.t", "dw.t/dt=1", "dw.t/dt=2"], [], ["dw.t SHARED"]),
        (["dw.t/dt=1"], ["dw.t"], ["dw.t EXCLUSIVE"]),
        (["dw", "dw.t"], [], ["dw SHARED", "dw.t SHARED"]),
        ([], ["dw", "dw.t/dt=1"], ["dw EXCLUSIVE"]),
    ],
)
def test_where_the_server_has_a_hierarchy_only_what_is_named_is_locked(
    reads: list[str], writes: list[str], locked: list[str]
) -> None:
    assert [str(lock) for lock in rules.leaves(rules.request("me", reads, writes))] == locked


@pytest.mark.parametrize(
    ("mine", "theirs", "excluded"),
    [
        ("dw.t EXCLUSIVE", "dw.t/dt=1 SHARED", True),
        ("dw.t/dt=1 EXCLUSIVE", "dw.t SHARED", True),
        ("dw.t/dt=1 EXCLUSIVE", "dw.t/dt=2 EXCLUSIVE", False),
        ("dw.t/a=1 EXCLUSIVE", "dw.t/a=1/b=2 SHARED", True),
        ("dw.t SHARED", "dw.t/dt=1 SHARED", False),
        ("dw SHARED", "dw.t EXCLUSIVE", False),
        ("dw SHARED", "dw EXCLUSIVE", True),
        ("dw.t EXCLUSIVE", "dw.u EXCLUSIVE", False),
    ],
)
def test_a_footprint_meets_what_lies_above_and_below(mine: str, theirs: str, excluded: bool) -> None:
    one, other = (
        Lock(LockObject.parse(name), LockMode(mode))
        for name, _, mode in (text.partition(" ") for text in (mine, theirs))
    )
    assert rules.excluder([one])(other) is excluded
    assert rules.excluder([other])(one) is excluded


def test_of_many_locks_below_the_stronger_counts() -> None:
    locks = [Lock(LockObject.parse(f"dw.t/dt={day}"), mode) for day, mode in enumerate((X, S, S))]
    assert rules.excluder(locks)(Lock(LockObject.parse("dw.t"), S))


def test_a_lock_above_covers_what_is_no_stronger() -> None:
    request = rules.request("me", ["dw.t", "dw.t/dt=1", "dw.u"], ["dw.t/dt=2"])
    taken = rules.components(request, reads=LockType.SHARED_WRITE)
    assert {str(target): kind.name for target, kind in taken.items()} == {
        "dw.t": "SHARED_WRITE",
        "dw.t/dt=2": "EXCLUSIVE",
        "dw.u": "SHARED_WRITE",
    }


def test_a_mismatch_shows_what_differs_and_no_more() -> None:
    shared = [f"dw.flights/dt={day}" for day in range(100)]
    standing = rules.request("me", [*shared, "dw.old", "dw.b"], ["dw.delays/dt=1"]).locks
    asked = rules.request(
        "me", [*shared, *(f"dw.new{number}" for number in range(8)), "dw.delays/dt=1"], ["dw.b"]
    ).locks
    assert str(rules.mismatch("me", standing, asked, held=True)) == (
        "me holds other locks than it now asks for (only held: dw.old SHARED; only asked for: dw.new0 SHARED, dw.new1 SHARED, "
        "dw.new2 SHARED, dw.new3 SHARED, dw.new4 SHARED, dw.new5 SHARED and 2 more; held in another mode than asked for: "
        "dw.delays/dt=1 EXCLUSIVE, dw.b SHARED). Release them first"
    )
    assert "waits for other locks" in str(rules.mismatch("me", standing, asked, held=False))
    assert "the same objects, from other" in str(rules.mismatch("me", standing, standing, held=True))


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        ({"dw.t": "X"}, {"dw.t/dt=1": "X", "dw.t": "S"}, []),
        ({"dw.t": "S"}, {"dw.t": "S"}, []),
        ({"dw.t": "S"}, {"dw.t": "X"}, ["dw.t"]),
        ({"dw.t": "S"}, {"dw.t/dt=1": "S"}, ["dw.t/dt=1"]),
        ({}, {"dw": "S"}, ["dw"]),
    ],
)
def test_what_is_beyond_held_locks(held: dict[str, str], wanted: dict[str, str], missing: list[str]) -> None:
    found = rules.beyond(locks_from_json(held), locks_from_json(wanted))
    assert [str(lock.object) for lock in found] == missing


def test_the_types_of_hives_transactional_manager_exclude_each_other_as_its_matrix_says() -> None:
    names = {"r": LockType.SHARED_READ, "w": LockType.SHARED_WRITE, "e": LockType.EXCL_WRITE, "x": LockType.EXCLUSIVE}
    for excl_write, together in ((True, {"rr", "rw", "wr", "re", "er", "ww"}), (False, {"rr", "rw", "wr", "re", "er"})):
        for one, other in itertools.product(names, names):
            excluded = rules.types_conflict(names[one], names[other], excl_write=excl_write)
            assert excluded is (one + other not in together), f"{one} {other}"
