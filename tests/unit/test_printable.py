"""What others have written into a lock store is shown in one line, and drives no terminal and no log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks import InvalidRequest, Lock, LockMode, LockObject, LockTimeout, StoreUnavailable
from airflow_hivelock.locks.invalid import HiveLockError, printable
from airflow_hivelock.locks.model import Blocker, Holder, Waiter
from airflow_hivelock.locks.statements import answers, render

if TYPE_CHECKING:
    from collections.abc import Callable

FORGED = "here/d/r/t/-1\n2026-01-01 INFO Released lease 7\r\x1b[2J\x9b1m\u202eb"
SHOWN = r"here/d/r/t/-1\n2026-01-01 INFO Released lease 7\r\x1b[2J\x9b1m\u202eb"
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = LockObject("dw", "t", (("dt", "1\u202e2"),))
HOLDER = Holder(TARGET, LockMode.SHARED, FORGED, WHEN, "7")
BLOCKER = Blocker(FORGED, TARGET, LockMode.SHARED)
GROUP = Blocker(FORGED, TARGET, LockMode.SHARED, group="night")
WAITER = Waiter(FORGED, (Lock(TARGET, LockMode.SHARED),), 1, WHEN, (BLOCKER,))


@pytest.mark.parametrize("text", ["", "prod/flights/2026/load/-1", "日本 é", "a\\nb"])
def test_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "shows",
    [
        lambda: printable(FORGED),
        lambda: str(HOLDER),
        lambda: str(BLOCKER),
        lambda: str(GROUP),
        lambda: str(InvalidRequest(f"held by {FORGED}")),
        lambda: str(StoreUnavailable(f"held by {FORGED}")),
        lambda: str(LockTimeout(f"held by {FORGED}", [BLOCKER])),
    ],
)
def test_what_cannot_is_shown_as_an_escape(shows: Callable[[], str]) -> None:
    assert SHOWN in shows()
    assert shows().isprintable()


def test_an_error_keeps_what_it_carries() -> None:
    error = LockTimeout("in time", [BLOCKER])
    assert (error.args, error.blocked_by, str(error)) == (("in time",), (BLOCKER,), "in time")
    assert isinstance(error, TimeoutError)
    assert not isinstance(error, asyncio.CancelledError)
    assert HiveLockError().args == ()


def test_an_error_of_several_lines_says_so_itself() -> None:
    assert str(InvalidRequest("these are known:", "one", "two\nthree")) == "these are known:\none\ntwo\\nthree"


def test_no_waiter_forges_a_line_of_the_list() -> None:
    text = render.show_waiters([(WAITER, WAITER.locks, None)])
    assert len(text.split("\n")) == 2
    assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))


def test_json_has_it_as_it_was_written() -> None:
    (record,) = answers.waiters([WAITER], {}).records()
    shown: Any = record["user"]
    assert shown == FORGED
