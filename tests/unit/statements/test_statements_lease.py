"""The statements on leases: LEASE, SHOW LEASE and DROP LEASE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LeaseAlreadyExists, LockLost
from airflow_hivelock.locks.statements.session import StatementSession
from tests.unit.statements.running import run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.manager import LockManager


@pytest.mark.parametrize(
    ("what", "freed"),
    [
        ("*", {"a", "b", "c", "d"}),
        ("t", {"a", "b"}),
        ("t partition (dt='1')", {"b"}),
        ("other.t", {"d"}),
        ("{c}", {"c"}),
        ("'{c}'", {"c"}),
    ],
)
def test_drop_force_lease_drops_what_it_names_and_says_who_and_why(
    manager: LockManager, what: str, freed: set[str]
) -> None:
    leases = {
        owner: manager.acquire(owner=owner, reads=[name])
        for owner, name in {"a": "dw.t", "b": "dw.t/dt=1", "c": "dw", "d": "other.t"}.items()
    }
    session = StatementSession(manager, user="ann", database="dw", reason="gone")
    result = run(session, f"drop force lease {what.format(c=leases['c'].id)}")
    assert {record["user"] for record in result.records()} == freed
    assert {lease.owner for lease in manager.leases()} == set(leases) - freed
    assert {(entry.owner, entry.user, entry.reason) for entry in manager.audit()} == {
        (owner, "ann", "gone") for owner in freed
    }


@pytest.mark.parametrize(("what", "named"), [("memory-99", "memory-99"), ("nothing", "on default.nothing")])
def test_a_lease_that_does_not_stand_is_not_dropped_in_silence(manager: LockManager, what: str, named: str) -> None:
    session = StatementSession(manager, user="ann", reason="gone")
    with pytest.raises(HiveLockError, match=f"no lease {named} is held; SHOW LEASE"):
        run(session, f"drop force lease {what}")
    assert not run(session, "drop force lease *").rows


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("12", "no lock 12 is held; SHOW LOCKS"),
        ("12 on table dw.t", r"no lock 12 on dw\.t is held; SHOW LOCKS"),
        ("hive_1-2 on table dw.t", r"Hive's query hive_1-2 holds no lock on dw\.t; SHOW LOCKS"),
    ],
)
def test_a_lock_of_hive_that_is_not_held_is_named(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch, what: str, said: str
) -> None:
    monkeypatch.setattr(manager, "force_unlock", lambda *_, **__: ())
    with pytest.raises(HiveLockError, match=said):
        run(StatementSession(manager, user="ann", reason="gone"), f"drop force lock {what}")


def test_show_lease_has_a_row_for_each_object(manager: LockManager, session: StatementSession) -> None:
    lease = manager.acquire(owner="job", reads=["other.u"], writes=["dw.t/dt=1"], lease_s=60)
    rows = run(session, "show lease *").records()
    assert _leased(rows) == [("dw", "t", "dt=1", "x"), ("other", "u", "", "s")]
    assert {(row["lease_id"], row["user"], row["token"]) for row in rows} == {(lease.id, "job", lease.token)}
    assert str(rows[0]["start_utc"]).endswith("+00:00")
    assert str(rows[0]["start_utc"]) < str(rows[0]["end_utc"])
    assert len(run(session, "show lease t").rows) == 1
    assert _leased(run(session, "show lease * extended").records()) == [
        ("dw", "", "", "s"),
        ("dw", "t", "", "s"),
        ("dw", "t", "dt=1", "x"),
        ("other", "", "", "s"),
        ("other", "u", "", "s"),
    ]
    assert len(run(session, "show lease t extended").rows) == 2


def test_show_lease_has_a_table_that_was_asked_for_beside_its_day(
    manager: LockManager, session: StatementSession
) -> None:
    manager.acquire(owner="job", reads=["dw.t"], writes=["dw.t/dt=1"])
    assert _leased(run(session, "show lease *").records()) == [("dw", "t", "", "s"), ("dw", "t", "dt=1", "x")]


def _leased(records: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("db_name", "table_name", "partition_name", "lease_type")) for row in records]


def test_a_script_grabs_a_lease_and_gives_it_back_a_part_at_a_time(
    manager: LockManager, session: StatementSession
) -> None:
    grabbed = run(
        session, "grab lease t partition (dt=1) exclusive, t partition (dt=2) exclusive, other.u shared"
    ).records()
    assert len({row["lease_id"] for row in grabbed}) == 1
    lease_id = str(grabbed[0]["lease_id"])
    assert _leased(grabbed) == [("dw", "t", "dt=1", "x"), ("dw", "t", "dt=2", "x"), ("other", "u", "", "s")]
    for text in (f"drop lease {lease_id} on t partition (dt=1), other.u", f"extend lease '{lease_id}'"):
        run(session, text)
    (left,) = manager.leases()
    assert [str(lock) for lock in left.locks] == ["dw SHARED", "dw.t SHARED", "dw.t/dt=2 EXCLUSIVE"]
    again = run(session, f"drop lease {lease_id} on t partition (dt=1)")
    assert again.rows == ()
    (dropped,) = run(session, f"drop lease {lease_id}").records()
    assert dropped["objects"] == "dw.t/dt=2"
    assert not manager.leases()
    for gone in (f"drop lease {lease_id}", "drop lease 123", "drop lease 123 on t"):
        with pytest.raises(LockLost, match=r"no lease .* is held: it was dropped, expired or was freed by force"):
            run(session, gone)
    with pytest.raises(LockLost, match="grab a new one"):
        run(session, f"extend lease {lease_id}")


def test_a_lease_that_is_in_the_way_is_named_and_nothing_is_grabbed(manager: LockManager) -> None:
    ann, bob = (
        StatementSession(manager, user="ann", database="dw"),
        StatementSession(manager, user="bob", database="dw"),
    )
    (row, _) = run(ann, "grab lease t exclusive, u shared").records()
    assert row["user"] == "ann"
    with pytest.raises(LeaseAlreadyExists, match="ann"):
        run(bob, "grab lease v exclusive, t shared")
    assert len(manager.leases()) == 1
    for text in ("drop lease {}", "extend lease {}", "drop lease {} on t"):
        with pytest.raises(HiveLockError, match="not bob's, but ann"):
            run(bob, text.format(row["lease_id"]))
    for text in ("grab lease t", "grab lease t shared, t exclusive", "drop lease on t", "extend lease", "drop lease"):
        with pytest.raises(InvalidRequest):
            run(ann, text)
    with pytest.raises(InvalidRequest, match="never held"):
        run(ann, f"drop lease {row['lease_id']} on v")
    assert len(manager.leases()) == 1
