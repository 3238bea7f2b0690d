"""The keeper: it renews the leases of tasks that cannot do so themselves, and frees leases that are not needed.

A task renews its lease while it runs. The keeper renews the lease between the tasks of a run, and while the task is
deferred or waits for a slot. The keeper is one trigger of an asset watcher, and uses no slot. If a task or run is over,
the keeper frees its lease when no work runs under the lease. Such tasks were killed, or could not reach the lock store
at their end. If the keeper cannot check the work, it lets the lease expire. Its event then starts the DAGs that are
scheduled on :data:`SUSPECT_LEASES`, such as the force release of suspect leases. The keeper also drops the deferred
requests of finished tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_hivelock import comms, metrics
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import reservations
from airflow_hivelock.locks.errors import (
    CannotTell,
    ExceedsMaxLeaseTime,
    HiveLockError,
    InvalidRequest,
    LockLost,
    StoreUnavailable,
    UpgradeNeeded,
)
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.locks.pending import OUTAGE_S
from airflow_hivelock.spec import Owner
from airflow_hivelock.triggers.arguments import Further, written
from airflow_hivelock.triggers.connection import Trial
from airflow_hivelock.triggers.drivers import free_drivers
from airflow_hivelock.triggers.threads import Threads
from airflow_hivelock.triggers.work_checks import WorkChecks
from airflow_hivelock.work.stale import Verdict, is_for_its_task, judge_run, judge_task, judge_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, Waiter

EVERY_S = 20.0
"""The default time between two checks of the leases, in seconds."""

REPEAT_S = 600.0
"""The time between two reports of the same leases, and between two tries of an invalid connection, in seconds."""

SETTLE_S = 30.0
"""The time between the end of a run and the end of its leases, in seconds: Airflow needs seconds to stop a task."""

RUNS_S = 30.0
"""The time that Airflow has to report the runs of all suspect leases, in seconds. The next round starts after it."""

AT_ONCE = 100
"""The most runs in one question to Airflow."""

SWEEP_S = 3600.0
"""The time between two sweeps of the lock store, in seconds."""

T = TypeVar("T", "Lease", "Waiter")


class HiveLockKeeper(BaseEventTrigger):
    """Keeps the leases of one Airflow in one lock store.

    Several keepers can run at the same time. A pause is harmless, because a lease lasts far longer than a triggerer's
    restart.

    :param every_s: the time between two checks, in seconds.
    :param ends: end if the connection is gone, or has failed since its first use for longer than a waiter tolerates.
        An asset's keeper must not end, because Airflow would start it again at once.
    """

    def __init__(
        self,
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        every_s: float = EVERY_S,
        ends: bool = False,
        **further: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hivelock_conn_id = hivelock_conn_id
        self.every_s = every_s
        self.ends = ends
        self._further = Further(further)
        self._hook: HiveLockHook | None = None
        self._trial = Trial(every_s)
        self._over_since: dict[str, float] = {}
        self._unanswered: dict[str, float] = {}
        self._threads = Threads()  # its own, because waiters can use up theirs
        self._checks = WorkChecks(self._threads)
        self._swept_at = 0.0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"hivelock_conn_id": self.hivelock_conn_id, "every_s": self.every_s, "ends": self.ends}
        return f"{type(self).__module__}.{type(self).__name__}", written(type(self), kwargs) | self._further.fields()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        reported: set[str] = set()
        reported_at = 0.0
        while True:
            await asyncio.sleep(self.every_s)
            try:
                suspects = await self._keep()
            except Exception as error:  # noqa: BLE001 - without a keeper, every lease would expire
                if not self._log_failure(error):
                    return
            else:
                if suspects.keys() - reported or (suspects and time.monotonic() > reported_at + REPEAT_S):
                    reported_at = time.monotonic()
                    yield TriggerEvent({"suspects": suspects})  # type: ignore[no-untyped-call]
                reported = set(suspects)

    def _log_failure(self, error: Exception) -> bool:
        """Log *error*, and return whether to try again."""
        settings = None if self._hook is None else self._hook.settings
        if not self._trial.is_due(settings):
            return True
        if isinstance(error, StoreUnavailable):
            metrics.store_failed()
        most_s = self.every_s if isinstance(error, StoreUnavailable) else REPEAT_S
        failing_s, pause_s = (0.0, 0.0) if isinstance(error, CannotTell) else self._trial.failed(settings, most_s)
        if self.ends and pause_s and (isinstance(error, InvalidRequest) or failing_s > OUTAGE_S):
            self.log.error(
                "The keeper of connection %r has ended: %s. The next task that waits with this connection starts a keeper",
                self.hivelock_conn_id,
                error,
            )
            return False
        foreseen = isinstance(error, HiveLockError | TimeoutError)
        (self.log.warning if foreseen else self.log.error)(
            "The leases of connection %r cannot be renewed or checked. Trying again in %g s%s: %r",
            self.hivelock_conn_id,
            pause_s or self.every_s,
            ", or when the connection has changed" if pause_s else "",
            error,
            exc_info=None if foreseen else error,
        )
        return True

    async def _keep(self) -> dict[str, str]:
        """Free leases that are over, and renew leases that are due. Return the suspect leases' reasons by lease id."""
        self._further.check(self.log)
        hook, answers = await self._load()
        if not self._trial.is_due(hook.settings):
            return {}
        manager = await self._threads.run(hook.manager)
        (leases, waiters), now = await self._threads.run(lambda: (manager.requests(), manager.now()))
        for lease in await self._threads.run(reservations.end_over, manager, leases, now):
            self.log.info("Released the reservation of %s, because its time is over", printable(lease.owner))
        owned = _owned(leases, hook.installation)
        deferred = _owned((waiter for waiter in waiters if waiter.waits_for is WaitsFor.SLOT), hook.installation)
        verdicts, gone = await self._judge(owned, deferred) if answers else ({}, [])
        self._over_since = {lease_id: since for lease_id, since in self._over_since.items() if lease_id in verdicts}
        over = [(owner, lease) for owner, lease in owned if lease.id in verdicts]
        over.sort(key=lambda each: self._checks.began(each[1]))
        whys = await asyncio.gather(
            *(self._free_or_log(manager, hook.installation, owner, lease, verdicts[lease.id]) for owner, lease in over)
        )
        suspects = {lease.id: why for (_, lease), why in zip(over, whys, strict=True) if why}
        suspects |= await free_drivers(manager, hook.installation, leases, now, self._checks, self.log)
        due = [(owner, lease) for owner, lease in owned if _is_due(lease, now)]
        for _, lease in due:
            if lease.id not in suspects:
                await self._renew(manager, lease)
        # Only now: other leases could expire while Airflow is silent about the runs of the suspects.
        for lease in await self._still_needed([(owner, lease) for owner, lease in due if lease.id in suspects]):
            await self._renew(manager, lease)
        for waiter in gone:
            if await self._threads.run(manager.forget_deferred, waiter.owner, waiter.attempt):
                self.log.info("Removed the deferred request of %s, because its task is over", printable(waiter.owner))
        if time.monotonic() > self._swept_at + SWEEP_S:
            with suppress(UpgradeNeeded):  # a later version's keeper sweeps; this one only renews
                await self._threads.run(manager.sweep)
            self._swept_at = time.monotonic()
        metrics.set_gauges(leases, waiters, now, hook.installation, len(suspects))
        self._trial.worked(hook.settings)
        return suspects

    async def _judge(
        self, owned: Sequence[tuple[Owner, Lease]], deferred: Sequence[tuple[Owner, Waiter]]
    ) -> tuple[dict[str, Verdict], list[Waiter]]:
        """The verdicts on leases that are over in Airflow, by lease id, and the deferred requests of finished tasks.
        Both are empty if Airflow does not answer."""
        verdicts: dict[str, Verdict] = {}
        gone: list[Waiter] = []
        try:
            leases, waiting = _by_dag(owned), _by_dag(deferred)
            for dag_id in self._answered_first({*leases, *waiting}):
                for owner, lease in [each async for each in self._in_doubt(dag_id, leases.get(dag_id, ()))]:
                    verdict = await _by_airflow(owner, lease)
                    if verdict.stale:
                        verdicts[lease.id] = verdict
                for owner, waiter in [each async for each in _tasks_in_doubt(dag_id, waiting.get(dag_id, ()))]:
                    if judge_task(owner, await comms.state_of(owner)).stale:
                        gone.append(waiter)
        except CannotTell as error:
            # Airflow is not asked again, because a wait for each lease could miss the last time for a renewal.
            self.log.warning("Keeping leases, because Airflow did not report the states of their tasks: %s", error)
        except Exception:
            # The other leases still have to be renewed.
            self.log.exception("Keeping leases, because Airflow's answer about their tasks cannot be read")
        return verdicts, gone

    def _answered_first(self, dag_ids: Collection[str]) -> Iterator[str]:
        """The DAGs, last those about which Airflow gave no answer, the latest of them at the end. Any client can write an
        owner that Airflow cannot look up, and its lease must not keep those of other DAGs from being freed."""
        self._unanswered = {dag_id: at for dag_id, at in self._unanswered.items() if dag_id in dag_ids}
        for dag_id in sorted(dag_ids, key=lambda dag_id: (self._unanswered.get(dag_id, 0.0), dag_id)):
            self._unanswered[dag_id] = time.monotonic()
            yield dag_id
            del self._unanswered[dag_id]  # only if the caller goes on

    async def _in_doubt(self, dag_id: str, leases: Sequence[tuple[Owner, Lease]]) -> AsyncIterator[tuple[Owner, Lease]]:
        """The leases that can be over. Most leases are not, so this needs only a few questions to Airflow."""
        over = {owner.run_id for owner, lease in leases if lease.id in self._over_since}
        for run_ids in _parts(sorted({owner.run_id for owner, _ in leases} - over)):
            if not await comms.all_go_on(dag_id, run_ids):
                over |= set(run_ids)
        mine = [(owner, lease) for owner, lease in leases if owner.run_id not in over and is_for_its_task(owner, lease)]
        async for each in _tasks_in_doubt(dag_id, mine):
            yield each
        for owner, lease in leases:
            if owner.run_id in over:
                yield owner, lease

    async def _free_or_log(
        self, manager: LockManager, installation: str, owner: Owner, lease: Lease, verdict: Verdict
    ) -> str | None:
        """Call :meth:`_free`. Log its failure, so that the other leases are still freed or renewed."""
        try:
            return await self._free(manager, installation, owner, lease, verdict)
        except StoreUnavailable:
            raise
        except Exception as error:
            self.log.exception("Lease %s of %s is kept, because it cannot be checked", lease.id, printable(lease.owner))
            return f"{verdict.reason}, but {error!r}"

    async def _free(
        self, manager: LockManager, installation: str, owner: Owner, lease: Lease, verdict: Verdict
    ) -> str | None:
        """Free *lease* if no work runs under it. Return a reason if a user has to check the work, else None."""
        own = is_for_its_task(owner, lease)
        first = lease.id not in self._over_since
        since = self._over_since.setdefault(lease.id, time.monotonic())
        if not own and time.monotonic() < since + SETTLE_S:
            return None
        if not manager.capabilities.remembers:
            return f"{verdict.reason}, but this store does not record the work under a lease. It frees the lease when it expires"
        if not own and verdict.unknown:
            return verdict.reason  # no record shows the work under it
        try:
            verdict = await self._checks.verdict(lease.id, partial(judge_work, owner, lease, verdict))
        except (CannotTell, TimeoutError) as error:
            return f"{verdict.reason}, but {error!r}"
        if not verdict.stale:
            if first:
                self.log.info("Keeping lease %s of %s: %s", lease.id, printable(lease.owner), verdict.reason)
            return None
        return await self._checks.free(manager, installation, lease, verdict, self.log)

    async def _still_needed(self, suspects: Sequence[tuple[Owner, Lease]]) -> list[Lease]:
        """Return the suspect leases to renew. Their run is not over, or Airflow does not report it in time."""
        until = asyncio.get_running_loop().time() + RUNS_S

        async def lapses(owner: Owner) -> bool:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    return await self._lapses(owner)
            return False

        answers = await asyncio.gather(*(lapses(owner) for owner, _ in suspects))
        return [lease for (_, lease), lapse in zip(suspects, answers, strict=True) if not lapse]

    async def _lapses(self, owner: Owner) -> bool:
        """Whether a suspect lease of *owner* may expire, because its run is over."""
        try:
            return judge_run(owner, *await comms.run_of(owner)).stale
        except CannotTell:
            return False

    async def _renew(self, manager: LockManager, lease: Lease) -> None:
        try:
            await self._threads.run(manager.renew, lease)
        except (LockLost, ExceedsMaxLeaseTime) as error:
            self.log.info("Not renewed: %s", error)
        except StoreUnavailable:
            raise
        except HiveLockError as error:  # only this lease failed, and the others must be renewed
            self.log.warning("Lease %s cannot be renewed: %s", lease.id, error)
        except Exception:
            self.log.exception("Lease %s cannot be renewed", lease.id)

    async def _load(self) -> tuple[HiveLockHook, bool]:
        """The connection's hook, and whether Airflow answers. If it does not, the last known hook."""
        hook = HiveLockHook(self.hivelock_conn_id)
        try:
            await comms.load(hook)
        except InvalidRequest:
            self._hook = None
            raise
        except CannotTell as error:
            if self._hook is None:
                raise
            self.log.warning("Using the last known settings of connection %r: %s", self.hivelock_conn_id, error)
            return self._hook, False
        self._hook = hook
        return hook, True


async def _by_airflow(owner: Owner, lease: Lease) -> Verdict:
    if is_for_its_task(owner, lease) and (verdict := judge_task(owner, await comms.state_of(owner))).stale:
        return verdict
    return judge_run(owner, *await comms.run_of(owner))


async def _tasks_in_doubt(dag_id: str, owned: Sequence[tuple[Owner, T]]) -> AsyncIterator[tuple[Owner, T]]:
    """The owners whose task can be over, with few questions to Airflow."""
    for run_ids in _parts(sorted({owner.run_id for owner, _ in owned})):
        states = await comms.states_in(dag_id, run_ids, {owner.task_id for owner, _ in owned})
        for owner, thing in owned:
            state = states.get(owner.run_id, {}).get(comms.key_of(owner))
            if owner.run_id in run_ids and state in (None, *comms.FINISHED):
                yield owner, thing


def _owned(things: Iterable[T], installation: str) -> list[tuple[Owner, T]]:
    owned = ((Owner.parse(thing.owner), thing) for thing in things)
    return [(owner, thing) for owner, thing in owned if owner and owner.installation == installation]


def _by_dag(owned: Iterable[tuple[Owner, T]]) -> Mapping[str, Sequence[tuple[Owner, T]]]:
    of_dag: dict[str, list[tuple[Owner, T]]] = defaultdict(list)
    for owner, thing in owned:
        of_dag[owner.dag_id].append((owner, thing))
    return of_dag


def _is_due(lease: Lease, now: datetime) -> bool:
    """Whether a third of the lease's time has passed, so that its task does not renew it."""
    return lease.expires is not None and (lease.expires - now).total_seconds() < lease.lease_s * 2 / 3


def _parts(items: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(items)
    while part := list(islice(rest, AT_ONCE)):
        yield part


def suspect_leases(hivelock_conn_id: str = HiveLockHook.default_conn_name) -> Asset:
    """The asset of a connection's suspect leases. If an unpaused DAG is scheduled on it, the connection's keeper runs.

    The DAG starts if a lease has a finished or unknown owner, and the keeper cannot check the lease's work.
    """
    suffix = "" if hivelock_conn_id == HiveLockHook.default_conn_name else f"_{hivelock_conn_id}"
    return Asset(
        f"hivelock_suspect_leases{suffix}",
        watchers=[AssetWatcher(name="keeper", trigger=HiveLockKeeper(hivelock_conn_id))],
    )


SUSPECT_LEASES = suspect_leases()
"""The asset of the connection ``hivelock_default``."""
