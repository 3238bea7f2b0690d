"""The keeper renews the leases of tasks that cannot do so themselves, and tells of those that nobody needs any more.

A task renews its lease while it runs. While it waits for a slot, is deferred, or its lock stands between the tasks of a
run, the keeper does: an asset watcher's trigger, which uses no slot, one for all. Whoever's run is over it lets lapse;
its event then starts the DAGs that are scheduled on :data:`SUSPECT_LEASES`, such as the force release of stale locks.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_hivelock import metrics, supervisor
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import ExceedsMaxLeaseTime, HiveLockError, InvalidRequest, LockLost, StoreUnavailable
from airflow_hivelock.owners import Owner
from airflow_hivelock.stale import judge_owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease

EVERY_S = 60.0
REPEAT_S = 600.0
"""How often it tells of leases that it has told of before."""

SWEEP_S = 3600.0


class HiveLockKeeper(BaseEventTrigger):
    """Keeps the leases of one Airflow on one lock store. Several of them do no harm, and none is missed for long:
    a lease outlives a take-over of the triggerer by far.

    :param every_s: how often it looks, in seconds.
    """

    def __init__(self, hivelock_conn_id: str = HiveLockHook.default_conn_name, every_s: float = EVERY_S) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hivelock_conn_id = hivelock_conn_id
        self.every_s = every_s
        self._hook: HiveLockHook | None = None
        self._swept_at = 0.0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"hivelock_conn_id": self.hivelock_conn_id, "every_s": self.every_s}
        return f"{type(self).__module__}.{type(self).__name__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        told: set[str] = set()
        told_at = 0.0
        while True:
            await asyncio.sleep(self.every_s)
            try:
                suspects = await self._keep()
            except Exception as error:  # noqa: BLE001 - a keeper that ended of it would let every lease lapse
                if isinstance(error, StoreUnavailable):
                    metrics.store_failed()
                self.log.warning("The leases cannot be kept; trying again in %g s: %r", self.every_s, error)
            else:
                repeat = time.monotonic() > told_at + REPEAT_S
                if suspects.keys() - told or (suspects and repeat):
                    told_at = time.monotonic()
                    yield TriggerEvent({"suspects": suspects})  # type: ignore[no-untyped-call]
                told = set(suspects)

    async def _keep(self) -> dict[str, str]:
        """Renew what is due and needed; the others by lease id, each with the reason why it is suspect."""
        hook, answers = await self._load()
        manager = await asyncio.to_thread(hook.manager)
        suspects: dict[str, str] = {}
        for owner, lease in await asyncio.to_thread(_due, manager, hook.installation):
            try:
                # Who is silent is asked once: to wait for each lease in turn would be too late for the last.
                verdict = judge_owner(owner, *await supervisor.run_of(owner)) if answers else None
            except supervisor.CannotTell as error:
                self.log.warning("Renewing lease %s all the same: %s", lease.id, error)
                verdict, answers = None, not isinstance(error.__cause__, TimeoutError)
            if verdict is not None and verdict.stale:
                suspects[lease.id] = verdict.reason
                continue
            try:
                await asyncio.to_thread(manager.renew, lease)
            except (LockLost, ExceedsMaxLeaseTime) as error:
                self.log.info("Not renewed: %s", error)
            except StoreUnavailable:
                raise
            except HiveLockError as error:  # this one alone: the others have to be renewed all the same
                self.log.warning("Lease %s cannot be renewed: %s", lease.id, error)
        if time.monotonic() > self._swept_at + SWEEP_S:
            await asyncio.to_thread(manager.sweep)
            self._swept_at = time.monotonic()
        await asyncio.to_thread(metrics.standing, manager, hook.installation, len(suspects))
        return suspects

    async def _load(self) -> tuple[HiveLockHook, bool]:
        """The connection, and whether Airflow answers; where it does not, as while its database is away, as it was last."""
        hook = HiveLockHook(self.hivelock_conn_id)
        try:
            await asyncio.wait_for(hook.load(), supervisor.ANSWER_S)
        except (InvalidRequest, TimeoutError) as error:  # Airflow's SDK takes a database that is away for no connection
            if self._hook is None:
                raise
            self.log.warning("Going by what connection %r said before: %r", self.hivelock_conn_id, error)
            return self._hook, not isinstance(error, TimeoutError)
        self._hook = hook
        return hook, True


def _due(manager: LockManager, installation: str) -> list[tuple[Owner, Lease]]:
    """The installation's leases of which a third has passed: their tasks do not renew them."""
    now = manager.now()
    owned = ((Owner.parse(lease.owner), lease) for lease in manager.leases())
    return [
        (owner, lease)
        for owner, lease in owned
        if owner and owner.installation == installation
        if lease.expires and (lease.expires - now).total_seconds() < lease.lease_s * 2 / 3
    ]


SUSPECT_LEASES = Asset("hivelock_suspect_leases", watchers=[AssetWatcher(name="keeper", trigger=HiveLockKeeper())])
"""Schedule a DAG on it, and the keeper runs; the DAG starts when there are leases of runs that are over."""
