"""SHOW GROUPS, SET GROUP and DROP GROUP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import Group, LeaseLimit
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest
from tests.unit.statements.running import run

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.statements.session import StatementSession


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("set group spark-prod leases 8", Group("spark-prod", 8)),
        ("SET GROUP dag.with/odd:name LEASES 2 WEIGHT 2", Group("dag.with/odd:name", 2, 2)),
        ("set group 'two words' leases 3 comment 'at night, too'", Group("two words", 3, 1, "at night, too")),
        ("set group leases leases 3", None),
        ("set group g leases 4 weight 2 comment 'x'", Group("g", 4, 2, "x")),
    ],
)
def test_a_group_is_set_by_its_name(
    session: StatementSession, manager: LockManager, text: str, stored: Group | None
) -> None:
    if stored is None:
        with pytest.raises(InvalidRequest, match="name of a group"):
            run(session, text)
        return
    (row,) = run(session, text).records()
    assert (row["group"], row["leases"], row["weight"], row["comment"]) == (
        *(stored.name, stored.leases, stored.weight),
        stored.comment,
    )
    assert [use.stored for use in manager.groups()] == [stored]
    assert [entry.user for entry in manager.audit()] == [session.actor]


def test_a_new_name_that_is_like_an_existing_one_is_told(
    session: StatementSession, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("spark-prod", "spark-dev", "spark-prod"):
        run(session, f"set group {name} leases 5")
    assert not caplog.messages
    run(session, "set group spark-prd leases 5")
    assert caplog.messages == ["group 'spark-prd' is new; did you mean spark-prod? DROP GROUP removes its limit"]


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("set group g leases 5", Group("g", 5, 2, "night")),
        ("set group g leases 5 weight 1", Group("g", 5, 1, "night")),
        ("set group g leases 5 comment ''", Group("g", 5, 2)),
        ("set group g leases 1", None),
    ],
)
def test_a_changed_limit_keeps_what_the_statement_does_not_name(
    session: StatementSession, manager: LockManager, text: str, stored: Group | None
) -> None:
    """The message of a request that is too heavy names this command. It must not make all others count for less."""
    run(session, "set group g leases 4 weight 2 comment 'night'")
    if stored is None:
        with pytest.raises(InvalidRequest, match="default weight 2 of group 'g' is above its limit of 1"):
            run(session, text)
        return
    run(session, text)
    assert [use.stored for use in manager.groups()] == [stored]


@pytest.mark.parametrize(
    "text",
    [
        "set group g",
        "set group g leases",
        "set group g leases x",
        "set group g leases 2 weight",
        "set group g leases 0",
    ],
)
def test_a_malformed_group_is_refused(session: StatementSession, manager: LockManager, text: str) -> None:
    with pytest.raises(InvalidRequest):
        run(session, text)
    assert list(manager.groups()) == []


def test_groups_are_shown_with_who_holds_and_dropped(session: StatementSession, manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.t"], limit=LeaseLimit("g", 5, 2))
    assert run(session, "show groups").records() == [
        {
            **{"group": "g", "leases": None, "weight": None, "taken": 2, "waiting": 0},
            **{"comment": "", "holders": "job (2)", "waiters": ""},
        }
    ]
    run(session, "set group g leases 1")
    assert run(session, "drop group g").records() == [{"group": "g"}]
    with pytest.raises(HiveLockError, match="no limit in the lock store"):
        run(session, "drop group g")
    shown = run(session, "show audit limit 1").text or ""
    assert shown.endswith("of group g: no limit in the store, before: 1 lease")
