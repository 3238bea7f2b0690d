"""The calls of the Hive lease manager, over the plainest backend."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import (
    HiveLeases,
    InvalidArguments,
    LeaseAlreadyExists,
    LockLost,
    LockManager,
    LockTimeout,
    connect,
)
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.spark.leases import DriverName

if TYPE_CHECKING:
    from pathlib import Path

DAY = "dw.flights/dt=2013-01-01"


@pytest.fixture
def leases() -> HiveLeases:
    return HiveLeases(MemoryBackend(), user="ann")


def rows(leases: HiveLeases, *names: str) -> list[tuple[str, str, str, str]]:
    return [(row.db_name, row.table_name, row.partition_name, row.lease_type) for row in leases.list_lease(names)]


def test_a_user_without_a_name_has_leases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container can run with any uid, without an entry in /etc/passwd."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert HiveLeases(MemoryBackend()).user == f"uid {os.getuid()}"
    assert str(DriverName("app-1", "local")).startswith(f"uid {os.getuid()}: Spark app-1")


def test_a_lease_is_listed_until_it_is_dropped(leases: HiveLeases) -> None:
    objs = [(DAY, "x"), ("dw.airports", "s")]
    lease_id = leases.grab_lease(objs, 60)
    assert rows(leases) == [("dw", "airports", "", "s"), ("dw", "flights", "dt=2013-01-01", "x")]
    (row,) = leases.list_lease([DAY])
    assert (row.user, row.lease_id) == ("ann", lease_id)
    assert row.end_utc
    assert (row.end_utc - row.start_utc).total_seconds() == 60
    leases.extend_lease(lease_id, objs)
    (extended,) = leases.list_lease([DAY, DAY])
    assert extended.start_utc == row.start_utc, "extending moves the end only"
    assert extended.end_utc
    assert extended.end_utc >= row.end_utc
    assert leases.drop_lease(lease_id, objs)
    assert not leases.drop_lease(lease_id, objs)
    assert rows(leases) == []
    with pytest.raises(LockLost, match="Grab a new lease"):
        leases.extend_lease(lease_id, objs)


def test_all_or_none_and_the_holder_is_named(leases: HiveLeases) -> None:
    leases.grab_lease([(DAY, "s")], 60)
    leases.grab_lease([(DAY, "s")], 60)
    other = HiveLeases(leases.manager, user="bob")
    with pytest.raises(LeaseAlreadyExists, match="ann") as refused:
        other.grab_lease([("dw.delays", "x"), (DAY, "x")], 60)
    assert isinstance(refused.value, LockTimeout)
    assert refused.value.blocked_by[0].owner.startswith("ann:")
    assert rows(leases, "dw.delays") == []


def test_what_a_lease_was_not_grabbed_for_is_neither_extended_nor_dropped(leases: HiveLeases) -> None:
    lease_id = leases.grab_lease([(DAY, "x"), ("dw.delays", "x")], 60)
    for objs in ([(DAY, "s"), ("dw.delays", "x")], [("dw.flights", "s")], [("dw.carriers", "x")], []):
        for call in (leases.drop_lease, leases.extend_lease):
            with pytest.raises(InvalidArguments, match="Name pairs of its grab"):
                call(lease_id, objs)
    assert len(rows(leases)) == 2


def test_a_part_of_a_lease_is_dropped_and_the_rest_is_extended(leases: HiveLeases) -> None:
    days = [(f"dw.flights/dt=2013-01-0{number}", "x") for number in (1, 2, 3)]
    lease_id = leases.grab_lease([*days, ("dw.airports", "s")], 60)
    assert leases.drop_lease(lease_id, [("dw.flights/dt=2013-01-01..2013-01-02", "x")])
    assert not leases.drop_lease(lease_id, days[:1]), "it is gone already"
    assert [row[1:3] for row in rows(leases)] == [("airports", ""), ("flights", "dt=2013-01-03")]
    leases.extend_lease(lease_id, days[2:])
    with pytest.raises(LockLost, match="has released"):
        leases.extend_lease(lease_id, days)
    HiveLeases(leases.manager, user="bob").grab_lease(days[:1], 60)
    assert leases.drop_lease(lease_id, [days[2], ("dw.airports", "s")])
    assert [row.user for row in leases.list_lease(["dw.flights"])] == ["bob"]


def test_pairs_of_a_grab_that_became_their_table_extend_it(leases: HiveLeases) -> None:
    """As ZooKeeper does with too many partitions, and a metastore with a prefix of their levels."""
    lease_id = leases.grab_lease([("dw.flights", "x")], 60)
    leases.extend_lease(lease_id, [(DAY, "x"), (f"{DAY}/hr=4", "s")])
    with pytest.raises(InvalidArguments, match=r"dw\.flights EXCLUSIVE is held in place of partitions, so name that"):
        leases.drop_lease(lease_id, [(DAY, "x")])
    with pytest.raises(InvalidArguments, match="Name pairs of its grab"):
        leases.drop_lease(lease_id, [("dw.airports", "x"), ("dw.flights", "x")])
    assert leases.drop_lease(lease_id, [("dw.flights", "x")])


def test_a_table_that_is_read_is_not_dropped_with_the_days_in_it_unless_they_are_named(leases: HiveLeases) -> None:
    lease_id = leases.grab_lease([("dw.flights", "s"), (DAY, "x")], 60)
    with pytest.raises(InvalidArguments, match="Name these objects too"):
        leases.drop_lease(lease_id, [("dw.flights", "s")])
    assert leases.drop_lease(lease_id, [(DAY, "x")])
    assert rows(leases) == [("dw", "flights", "", "s")]
    assert leases.drop_lease(lease_id, [("dw.flights", "s")])
    assert rows(leases) == []


def test_an_expired_lease_is_in_nobodys_way_where_the_store_frees_by_time(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/leases.db?expiry=frees") as manager:
        leases = HiveLeases(manager, user="ann")
        expired = leases.grab_lease([(DAY, "x")], 1)
        leases.grab_lease([(DAY, "x")], 60, 30)
        assert not leases.drop_lease(expired, [(DAY, "x")])
        assert len(rows(leases, DAY)) == 1


def test_forcing_drops_what_is_named_or_everything_and_is_audited(leases: HiveLeases) -> None:
    first, second, third = (leases.grab_lease([(name, "x")], 60) for name in (DAY, "dw.delays", "lake.raw"))
    assert leases.force_drop_lease(["dw.flights"]) == [first]
    assert leases.force_drop_lease([]) == [second, third]
    assert leases.force_drop_lease([]) == []
    assert [entry.user for entry in leases.manager.audit()] == ["ann"] * 3


@pytest.mark.parametrize(
    "objs", [[], "dw.flights", ["dw.flights"], [("dw.flights", "y")], [("dw flights", "x")], [(1, "x")]]
)
def test_what_cannot_be_meant_is_refused(leases: HiveLeases, objs: object) -> None:
    with pytest.raises(InvalidArguments):
        leases.grab_lease(objs, 60)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        leases.grab_lease([(DAY, "x")], 0)
    assert rows(leases) == []


def test_a_manager_does_as_well_as_its_backend() -> None:
    manager = LockManager(MemoryBackend())
    assert HiveLeases(manager).grab_lease([(DAY, "x")], 60)
    assert manager.show(DAY)
