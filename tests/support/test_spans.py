"""The judge sees every overlap, and no other pair."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.support.spans import Span, overlaps

FIRST = Span(0, 10, "first", "dw.t")


@pytest.mark.parametrize(
    ("other", "beside"),
    [
        (Span(9, 20, "other", "dw.t"), True),
        (Span(2, 3, "other", "dw.t"), True),
        (Span(5, who="other", on="dw.t"), True),
        (Span(9, 20, "other", "dw.t", shared=True), True),
        (Span(10, 20, "other", "dw.t"), False),
        (Span(9, 20, "other", "dw.u"), False),
    ],
)
def test_two_on_one_thing_at_once_are_a_pair(other: Span, beside: bool) -> None:
    assert all(bool(overlaps(spans)) == beside for spans in permutations([FIRST, other]))


def test_a_long_one_is_beside_each_that_comes_meanwhile_and_readers_bear_readers() -> None:
    reader, later, last = (Span(at, at + 2, str(at), "dw.t", shared=True) for at in (1, 2, 5))
    assert overlaps([reader, later, last]) == []
    assert overlaps([FIRST, reader, later, last]) == [(reader, FIRST), (later, FIRST), (last, FIRST)]
