"""A group's limit in the lock store, and requests that weigh more than one lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.errors import InvalidRequest, LockTimeout, Unsupported
from airflow_hivelock.locks.model import DeferredGrant, Group, GroupUse, LeaseLimit, Member
from tests.conformance.limits import most_at_once
from tests.conformance.suite import DAY1, PATIENCE_S, Polling, Suite, where

if TYPE_CHECKING:
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease
    from tests.conformance.suite import Connect

GROUP = "spark-prod"
ONE, FOUR, ANY = LeaseLimit(GROUP, 1), LeaseLimit(GROUP, 4), LeaseLimit(GROUP)


def table(number: int) -> str:
    return f"dw.table_{number}"


def weighing(weight: int) -> LeaseLimit:
    return LeaseLimit(GROUP, weight=weight)


class Grouping(Suite):
    @where(limits=False)
    def test_a_store_that_counts_no_leases_has_no_groups(self, manager: LockManager) -> None:
        with pytest.raises(Unsupported, match=GROUP):
            manager.set_group(GROUP, 1, user="ops")
        with pytest.raises(Unsupported, match=GROUP):
            manager.drop_group(GROUP, user="ops")
        assert manager.groups() == ()

    @where(limits=True)
    def test_the_limit_in_the_store_wins_over_those_of_the_requests(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.set_group(GROUP, 2, user="ops")
        leases = [_take(other, 1, ONE), _take(manager, 2, FOUR)]
        for limit in (ONE, FOUR, ANY):
            with pytest.raises(LockTimeout, match=GROUP):
                _take(other, 3, limit)
        assert manager.drop_group(GROUP, user="ops")
        assert not other.drop_group(GROUP, user="ops"), "the second had nothing to drop"
        with pytest.raises(LockTimeout, match=GROUP):
            _take(manager, 3, ONE)
        assert _take(other, 3, FOUR)
        assert _take(other, 4, ANY), "a request without a limit is held to the store's only"
        manager.release(leases[0])

    @where(limits=True)
    def test_a_waiter_notices_a_larger_limit(self, manager: LockManager, other: LockManager) -> None:
        _take(manager, 1, ONE)
        second, third, fourth = (
            Polling.queued(other, f"owner {number}", writes=[table(number)], limit=ONE) for number in (2, 3, 4)
        )
        manager.set_group(GROUP, 3, user="ops")
        second.woken()
        assert second.granted()
        assert third.granted()
        fourth.blocked()
        manager.set_group(GROUP, 4, user="ops")
        fourth.woken()
        assert fourth.granted()

    @where(limits=True)
    def test_a_smaller_limit_takes_no_lease_from_a_holder(self, manager: LockManager, other: LockManager) -> None:
        manager.set_group(GROUP, 3, user="ops")
        leases = [_take(manager, number, ANY) for number in (1, 2, 3)]
        other.set_group(GROUP, 1, user="ops")
        for lease in leases:
            manager.verify(lease)
            manager.renew(lease)
        waiting = Polling(other, "owner 4", writes=[table(4)], limit=ANY)
        for lease in leases[:2]:
            waiting.blocked()
            manager.release(lease)
        waiting.blocked()
        manager.release(leases[2])
        assert waiting.granted()

    @where(limits=True)
    def test_a_dropped_limit_lets_a_waiter_go_by_its_own(self, manager: LockManager, other: LockManager) -> None:
        manager.set_group(GROUP, 1, user="ops")
        _take(manager, 1, FOUR)
        waiting = Polling.queued(other, "owner 2", writes=[table(2)], limit=FOUR)
        manager.drop_group(GROUP, user="ops")
        waiting.woken()
        assert waiting.granted()

    @where(limits=True)
    def test_groups_are_listed_with_who_holds_and_who_waits(self, manager: LockManager, other: LockManager) -> None:
        assert list(manager.groups()) == []
        stored = manager.set_group(GROUP, 3, weight=2, comment="as many as the cluster runs", user="ops")
        assert stored == Group(GROUP, 3, 2, "as many as the cluster runs")
        lease = _take(manager, 1, ANY)
        waiting = Polling.queued(other, "owner 2", writes=[table(2)], limit=ANY)
        last = Polling.queued(manager, "owner 3", writes=[table(3)], limit=weighing(1))
        holding, waiters = (Member("owner 1", 2),), (Member("owner 2", 2), Member("owner 3", 1))
        assert list(other.groups()) == [GroupUse(GROUP, stored, holding, waiters)]
        waiting.pending.withdraw()
        last.pending.withdraw()
        manager.release(lease)
        assert list(other.groups()) == [GroupUse(GROUP, stored)]
        manager.drop_group(GROUP, user="ops")
        assert list(other.groups()) == []

    @where(limits=True, audits=True)
    def test_a_change_of_a_group_is_audited(self, manager: LockManager, other: LockManager) -> None:
        manager.set_group(GROUP, 8, comment="night", user="ann", reason="the cluster grew")
        other.set_group(GROUP, 2, weight=2, user="bob")
        other.drop_group(GROUP, user="bob")
        entries = [(entry.user, entry.owner, entry.reason) for entry in manager.audit()]
        assert entries == [
            ("ann", f"group {GROUP}", "8 leases (night), before: no limit in the store. the cluster grew"),
            ("bob", f"group {GROUP}", "2 leases, default weight 2, before: 8 leases (night)"),
            ("bob", f"group {GROUP}", "no limit in the store, before: 2 leases, default weight 2"),
        ]
        with pytest.raises(InvalidRequest, match="user"):
            manager.set_group(GROUP, 8, user=" ")
        with pytest.raises(InvalidRequest, match="leases=0"):
            manager.set_group(GROUP, 0, user="ann")
        assert len(manager.audit()) == 3

    # Weights.

    @where(limits=True)
    def test_a_heavy_request_takes_as_many_leases_as_it_weighs(self, manager: LockManager, other: LockManager) -> None:
        manager.set_group(GROUP, 4, user="ops")
        heavy = _take(manager, 1, weighing(3))
        light = _take(other, 2, ANY)
        with pytest.raises(LockTimeout, match=GROUP):
            _take(other, 3, ANY)
        manager.release(light)
        with pytest.raises(LockTimeout, match=GROUP):
            _take(other, 3, weighing(2))
        manager.release(heavy)
        assert _take(other, 3, weighing(4))

    @where(limits=True)
    def test_the_weight_of_a_lease_stays_when_the_default_changes(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.set_group(GROUP, 4, weight=2, user="ops")
        _take(manager, 1, ANY)
        other.set_group(GROUP, 4, user="ops")
        assert next(iter(manager.groups())).taken == 2
        for number in (2, 3):
            _take(other, number, ANY)
        with pytest.raises(LockTimeout, match=GROUP):
            _take(other, 4, ANY)

    @where(limits=True)
    def test_a_request_above_the_limit_is_refused_before_it_takes_anything(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.set_group(GROUP, 2, user="ops")
        wanted = "owner 1 weighs 3.* limit of its group 'spark-prod' is 2.*hivelock group set"
        for limit in (weighing(3), LeaseLimit(GROUP, 9, 3)):
            with pytest.raises(InvalidRequest, match=wanted):
                other.acquire(owner="owner 1", writes=[table(1)], limit=limit, timeout_s=PATIENCE_S)
        with pytest.raises(InvalidRequest, match="its group 'own' is 1"):
            other.acquire(owner="owner 1", writes=[table(1)], limit=LeaseLimit("own", 1, 2))
        assert (list(manager.leases()), list(manager.waiters())) == ([], [])
        assert _take(manager, 1, weighing(2))

    @where(limits=True)
    def test_a_heavy_request_at_the_front_is_not_starved_by_light_ones(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.set_group(GROUP, 3, user="ops")
        leases = [_take(manager, number, ANY) for number in (1, 2)]
        heavy = Polling.queued(other, "heavy", writes=[table(3)], limit=weighing(3))
        light = Polling(manager, "light", writes=[table(4)], limit=ANY)
        assert "heavy" in light.blocked_by(), "one is free, but the heavy one needs it"
        manager.release(leases[0])
        heavy.blocked()
        light.blocked()
        manager.release(leases[1])
        lease = heavy.granted()
        light.blocked()
        other.release(lease)
        assert light.granted()

    @where(limits=True)
    def test_a_waiter_that_became_too_heavy_is_refused_and_blocks_no_other(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.set_group(GROUP, 3, user="ops")
        lease = _take(manager, 1, weighing(3))
        heavy = Polling.queued(other, "heavy", writes=[table(2)], limit=weighing(2))
        light = Polling.queued(manager, "light", writes=[table(3)], limit=ANY)
        manager.set_group(GROUP, 1, user="ops")
        heavy.woken()
        with pytest.raises(InvalidRequest, match="heavy weighs 2"):
            heavy.pending.poll()
        light.blocked()
        assert [waiter.owner for waiter in manager.waiters()] == ["light"]
        manager.release(lease)
        assert light.granted()

    @where(limits=True, remembers=True)
    def test_an_owners_next_process_keeps_the_weight(self, manager: LockManager, other: LockManager) -> None:
        manager.set_group(GROUP, 3, user="ops")
        lease = _take(manager, 1, weighing(2))
        again = other.acquire(owner="owner 1", writes=[table(1)], limit=weighing(2), attempt=1)
        assert again.id == lease.id
        assert next(iter(manager.groups())).taken == 2
        Polling.queued(manager, "heavy", writes=[table(2)], limit=weighing(3))
        successor = Polling.queued(other, "heavy", writes=[table(2)], limit=weighing(3))
        other.release(again)
        successor.granted()
        assert next(iter(manager.groups())).taken == 3

    @where(limits=True, invites=True)
    def test_an_invited_request_holds_all_its_permits(self, manager: LockManager, other: LockManager) -> None:
        manager.set_group(GROUP, 3, user="ops")
        late = Polling(other, "late", writes=[table(1)], limit=weighing(2), deferred=DeferredGrant(60.0))
        late.free()
        with pytest.raises(LockTimeout, match=GROUP):
            _take(manager, 2, weighing(2))
        _take(manager, 2, ANY)
        manager.set_group(GROUP, 1, user="ops")
        deferred = DeferredGrant(60.0, has_slot=True)
        worker = Polling(other, "late", writes=[table(1)], limit=weighing(2), deferred=deferred)
        assert worker.granted(), "it has its permits, whatever the limit is now"

    @where(invites=True, limits=True, prioritized=True)
    def test_a_request_that_gives_its_permits_back_has_the_groups_weight_again(
        self, manager: LockManager, other: LockManager
    ) -> None:
        manager.set_group(GROUP, 4, weight=2, user="ops")
        waiting, with_slot = (DeferredGrant(600.0, has_slot=slot) for slot in (False, True))
        first = Polling(manager, "task", writes=[DAY1], deferred=waiting, limit=ANY)
        first.free()
        urgent = other.acquire(owner="urgent", writes=[DAY1], priority=10)
        Polling(manager, "task", writes=[DAY1], deferred=with_slot, limit=ANY).blocked()
        again = Polling(manager, "task", writes=[DAY1], deferred=waiting, limit=ANY)
        again.blocked()
        manager.set_group(GROUP, 1, weight=1, user="ops")
        assert other.release(urgent)
        again.free()
        assert [use.holding for use in manager.groups()] == [(Member("task", 1),)]

    @where(limits=True)
    def test_many_of_different_weights_never_hold_more_while_the_limit_changes(self, connect: Connect) -> None:
        with connect() as ops:

            def change() -> None:
                for leases in (3, 2, 3):
                    ops.set_group(GROUP, leases, user="ops")

            ops.set_group(GROUP, 2, user="ops")
            weights = [weighing(1 + number % 2) for number in range(4)]
            assert 2 <= most_at_once(connect, weights, rounds=4, meanwhile=change) <= 3


def _take(manager: LockManager, number: int, limit: LeaseLimit) -> Lease:
    return manager.acquire(owner=f"owner {number}", writes=[table(number)], limit=limit)
