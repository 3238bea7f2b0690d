"""SHOW HISTORY and SHOW AUDIT: what was held, and what was freed by force, by whom and why."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.statements.session import StatementSession
from tests.unit.statements.running import run

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")


@pytest.fixture
def past(manager: LockManager) -> None:
    """Three leases that have ended, the last one by force, and one that is held."""
    for owner, name in {"daily 1": "dw.t/dt=1", "daily 2": "dw.t/dt=2", "report": "dw.u"}.items():
        lease = manager.acquire(owner=owner, writes=[name])
        if owner == "report":
            manager.force_release(lease.id, reason="its host\nis gone", user="bob")
        else:
            manager.release(lease)
    manager.force_release(manager.acquire(owner="daily 3", writes=["other.t"]).id, reason="stuck", user="eve")
    manager.acquire(owner="daily 4", writes=["dw.t/dt=4"])


@pytest.mark.usefixtures("past")
def test_show_history_has_the_newest_lease_first_and_what_is_still_held(session: StatementSession) -> None:
    result = run(session, "show history")
    assert TIME.sub("NOW", result.text or "").split("\n") == [
        "NOW\tdaily 4 got dw.t/dt=4 EXCLUSIVE after 0 s, still held",
        "NOW\tdaily 3 got other.t EXCLUSIVE after 0 s, held for 0 s",
        "NOW\treport got dw.u EXCLUSIVE after 0 s, held for 0 s",
        "NOW\tdaily 2 got dw.t/dt=2 EXCLUSIVE after 0 s, held for 0 s",
        "NOW\tdaily 1 got dw.t/dt=1 EXCLUSIVE after 0 s, held for 0 s",
    ]
    held, *ended = result.records()
    assert (held["ended_utc"], held["held_s"], held["waited_s"]) == (None, None, 0)
    assert all(row["ended_utc"] and row["held_s"] == 0 for row in ended)


@pytest.mark.usefixtures("past")
@pytest.mark.parametrize(
    ("asked", "owners"),
    [
        ("t", ["daily 4", "daily 2", "daily 1"]),
        ("t partition (dt=2)", ["daily 2"]),
        ("database other", ["daily 3"]),
        ("owner 'daily'", ["daily 4", "daily 3", "daily 2", "daily 1"]),
        ("limit 2", ["daily 4", "daily 3"]),
        ("t owner 'daily' limit 1", ["daily 4"]),
        ("owner 'Daily'", []),
    ],
)
def test_a_history_is_of_the_object_of_the_owner_and_no_longer_than_the_limit(
    session: StatementSession, asked: str, owners: list[str]
) -> None:
    assert [row["user"] for row in run(session, f"show history {asked}").records()] == owners


@pytest.mark.usefixtures("past")
def test_show_audit_has_who_freed_what_and_why(session: StatementSession) -> None:
    result = run(session, "show audit")
    assert TIME.sub("NOW", result.text or "").split("\n") == [
        "NOW\teve, of daily 3: other.t EXCLUSIVE. stuck",
        "NOW\tbob, of report: dw.u EXCLUSIVE. its host is gone",
    ]
    (row,) = run(session, "show audit u").records()
    assert [row[name] for name in ("by", "user", "locks", "reason")] == [
        "bob",
        "report",
        "dw.u EXCLUSIVE",
        "its host is gone",
    ]
    assert run(session, "show audit owner 'daily' limit 5").records()[0]["by"] == "eve"
    assert run(session, "show audit owner 'nobody'").records() == []


def test_a_limit_of_none_is_refused(session: StatementSession) -> None:
    with pytest.raises(InvalidRequest, match="limit=0 is invalid"):
        run(session, "show history limit 0")


@pytest.mark.parametrize("statement", ["show history", "show audit"])
def test_a_store_without_a_history_refuses_and_names_the_logs(manager: LockManager, statement: str) -> None:
    """An empty answer would claim that nothing was ever freed by force."""
    manager.backend.capabilities = replace(manager.capabilities, audits=False)  # type: ignore[misc]
    with pytest.raises(Unsupported, match="keeps no history of leases and no audit trail"):
        run(StatementSession(manager, user="ann"), statement)
