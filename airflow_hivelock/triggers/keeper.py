"""The keeper renews the leases of tasks that cannot do so themselves, and frees those that nobody needs any more.

A task renews its lease while it runs. While it waits for a slot, is deferred, or its lock stands between the tasks of a
run, the keeper does: an asset watcher's trigger, which uses no slot, one for all. A lease whose task or run is over it
frees, once nothing runs under it: a task whose store was away as it ended could not, nor one that was killed. Where that
cannot be told from here, it lets the lease lapse; its event then starts the DAGs that are scheduled on
:data:`SUSPECT_LEASES`, such as the force release of stale locks. Who waits for a worker slot for a task that is over is
no longer listed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_hivelock import comms, metrics
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import (
    CannotTell,
    ExceedsMaxLeaseTime,
    HiveLockError,
    InvalidRequest,
    LockLost,
    StoreUnavailable,
)
from airflow_hivelock.locks.invalid import printable
from airflow_hivelock.locks.model import WaitsFor
from airflow_hivelock.locks.pending import OUTAGE_S
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.stale import Verdict, is_for_its_task, judge_owner, judge_task, judge_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from airflow_hivelock.hooks import Settings
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Lease, Waiter

EVERY_S = 20.0
REPEAT_S = 600.0
"""How often it tells of leases that it has told of before, and tries a connection that cannot be meant."""

SETTLE_S = 30.0
"""How long a run has to be over before its leases are: Airflow takes seconds to stop a task that was marked."""

AT_ONCE = 100
"""Of how many runs Airflow is asked at once."""

LOOK_S = 30.0
"""How long a look at what runs under a lease may take: a cluster that does not answer keeps no other lease waiting."""

SWEEP_S = 3600.0

T = TypeVar("T", "Lease", "Waiter")


class HiveLockKeeper(BaseEventTrigger):
    """Keeps the leases of one Airflow on one lock store. Several of them do no harm, and none is missed for long:
    a lease outlives a take-over of the triggerer by far.

    :param every_s: how often it looks, in seconds.
    :param ends: whether it ends with its connection: when that is gone, or has never worked for as long as a waiter
        would put up with. An asset's keeper must not: Airflow would start it anew at once.
    """

    def __init__(
        self,
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        every_s: float = EVERY_S,
        ends: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hivelock_conn_id = hivelock_conn_id
        self.every_s = every_s
        self.ends = ends
        self._hook: HiveLockHook | None = None
        self._trial = _Trial(every_s)
        self._over_since: dict[str, float] = {}
        self._looks: dict[str, Future[Verdict]] = {}
        self._swept_at = 0.0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"hivelock_conn_id": self.hivelock_conn_id, "every_s": self.every_s, "ends": self.ends}
        return f"{type(self).__module__}.{type(self).__name__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        told: set[str] = set()
        told_at = 0.0
        while True:
            await asyncio.sleep(self.every_s)
            try:
                suspects = await self._keep()
            except Exception as error:  # noqa: BLE001 - a keeper that ended here would let every lease lapse
                if not self._goes_on(error):
                    return
            else:
                repeat = time.monotonic() > told_at + REPEAT_S
                if suspects.keys() - told or (suspects and repeat):
                    told_at = time.monotonic()
                    yield TriggerEvent({"suspects": suspects})  # type: ignore[no-untyped-call]
                told = set(suspects)

    def _goes_on(self, error: Exception) -> bool:
        """Whether to try again after *error*, and says when."""
        settings = None if self._hook is None else self._hook.settings
        if not self._trial.is_due(settings):
            return True
        if isinstance(error, StoreUnavailable):
            metrics.store_failed()
        silent = isinstance(error, CannotTell)
        most_s = self.every_s if isinstance(error, StoreUnavailable) else REPEAT_S
        failing_s, pause_s = (0.0, 0.0) if silent else self._trial.failed(settings, most_s)
        if self.ends and pause_s and (isinstance(error, InvalidRequest) or failing_s > OUTAGE_S):
            self.log.error(
                "Nobody keeps the leases of connection %r any more, until a task waits with it again: %s",
                self.hivelock_conn_id,
                error,
            )
            return False
        foreseen = isinstance(error, HiveLockError | TimeoutError)
        (self.log.warning if foreseen else self.log.error)(
            "The leases of connection %r cannot be kept; trying again in %g s%s: %r",
            self.hivelock_conn_id,
            pause_s or self.every_s,
            ", or when the connection has changed" if pause_s else "",
            error,
            exc_info=None if foreseen else error,
        )
        return True

    async def _keep(self) -> dict[str, str]:
        """Free what is over and renew what is due; the rest by lease id, each with the reason why it is suspect."""
        hook, answers = await self._load()
        if not self._trial.is_due(hook.settings):
            return {}
        manager = await asyncio.to_thread(hook.manager)
        (standing, waiters), now = await asyncio.to_thread(lambda: (manager.requests(), manager.now()))
        owned = _owned(standing, hook.installation)
        aside = _owned((waiter for waiter in waiters if waiter.waits_for is WaitsFor.SLOT), hook.installation)
        verdicts, gone = await self._judge(owned, aside) if answers else ({}, [])
        self._over_since = {lease_id: since for lease_id, since in self._over_since.items() if lease_id in verdicts}
        over = [(owner, lease) for owner, lease in owned if lease.id in verdicts]
        whys = await asyncio.gather(
            *(self._freed(manager, hook.installation, owner, lease, verdicts[lease.id]) for owner, lease in over)
        )
        suspects = {lease.id: why for (_, lease), why in zip(over, whys, strict=True) if why}
        for owner, lease in owned:
            if _is_due(lease, now) and not (lease.id in suspects and await self._lapses(owner)):
                await self._renew(manager, lease)
        for waiter in gone:
            if await asyncio.to_thread(manager.forget_aside, waiter.owner, waiter.attempt):
                self.log.info("%s waits for no worker slot any more: the task is over", printable(waiter.owner))
        if time.monotonic() > self._swept_at + SWEEP_S:
            await asyncio.to_thread(manager.sweep)
            self._swept_at = time.monotonic()
        metrics.standing(standing, waiters, now, hook.installation, len(suspects))
        self._trial.worked(hook.settings)
        return suspects

    async def _judge(
        self, owned: Sequence[tuple[Owner, Lease]], aside: Sequence[tuple[Owner, Waiter]]
    ) -> tuple[dict[str, Verdict], list[Waiter]]:
        """The leases that are over by Airflow's word, and who has stepped aside for a task that is. What Airflow does
        not say is not over."""
        verdicts: dict[str, Verdict] = {}
        gone: list[Waiter] = []
        try:
            for dag_id, leases in _by_dag(owned).items():
                for owner, lease in [each async for each in self._in_doubt(dag_id, leases)]:
                    verdict = await _by_airflow(owner, lease)
                    if verdict.stale:
                        verdicts[lease.id] = verdict
            for dag_id, waiting in _by_dag(aside).items():
                for owner, waiter in [each async for each in _tasks_in_doubt(dag_id, waiting)]:
                    if judge_task(owner, await comms.state_of(owner)).stale:
                        gone.append(waiter)
        except CannotTell as error:
            # It is not asked again: to wait for each lease in turn would be too late for the last renewal.
            self.log.warning("Keeping the leases of which Airflow says nothing: %s", error)
        except Exception:
            # The rest still have to be renewed.
            self.log.exception("Keeping the leases of which Airflow's answer cannot be read")
        return verdicts, gone

    async def _in_doubt(self, dag_id: str, leases: Sequence[tuple[Owner, Lease]]) -> AsyncIterator[tuple[Owner, Lease]]:
        """Those that may be over, by few questions: most are not."""
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

    async def _freed(
        self, manager: LockManager, installation: str, owner: Owner, lease: Lease, verdict: Verdict
    ) -> str | None:
        """As :meth:`_free`, for this lease alone: what fails for it keeps no other from being freed or renewed."""
        try:
            return await self._free(manager, installation, owner, lease, verdict)
        except StoreUnavailable:
            raise
        except Exception as error:
            self.log.exception("Lease %s of %s cannot be judged; it stays", lease.id, printable(lease.owner))
            return f"{verdict.reason}, but {error!r}"

    async def _free(
        self, manager: LockManager, installation: str, owner: Owner, lease: Lease, verdict: Verdict
    ) -> str | None:
        """Free *lease* if nothing can be at work under it; else why not, if somebody elsewhere has to look."""
        own = is_for_its_task(owner, lease)
        first = lease.id not in self._over_since
        since = self._over_since.setdefault(lease.id, time.monotonic())
        if not own and time.monotonic() < since + SETTLE_S:
            return None
        if not manager.capabilities.remembers:
            return f"{verdict.reason}; the store does not record what runs under a lease, and frees what is not renewed"
        if not own and verdict.unknown:
            return verdict.reason  # what has run under it is recorded nowhere
        try:
            verdict = await self._look(owner, lease, verdict)
        except (CannotTell, TimeoutError) as error:
            return f"{verdict.reason}, but {error!r}"
        if not verdict.stale:
            if first:
                self.log.info("Keeping lease %s of %s: %s", lease.id, printable(lease.owner), verdict.reason)
            return None
        try:
            freed = await asyncio.to_thread(
                manager.force_release, lease.id, reason=verdict.reason, user=f"keeper of {installation}", seen=lease
            )
        except StoreUnavailable:
            raise
        except HiveLockError as error:
            return f"{verdict.reason}, but {error}"
        if freed:
            metrics.force_released()
            self.log.info("Freed lease %s of %s: %s", lease.id, printable(lease.owner), verdict.reason)
        return None

    async def _look(self, owner: Owner, lease: Lease, verdict: Verdict) -> Verdict:
        """As :func:`judge_work`, in a thread of its own: a shared one may be kept for ever by a cluster that is silent.

        :raises CannotTell: it does not say.
        :raises TimeoutError: nor in time. That look goes on, and tells nothing; the next begins when it has ended.
        """
        self._looks = {lease_id: look for lease_id, look in self._looks.items() if not look.done()}
        if lease.id in self._looks:
            raise TimeoutError("an earlier look has not come back")
        looking = self._looks[lease.id] = Future()
        looking.set_running_or_notify_cancel()

        def look() -> None:
            try:
                looking.set_result(judge_work(owner, lease, verdict))
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                looking.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - SystemExit would end the triggerer's event loop there
                looking.set_exception(RuntimeError(f"the look raised {error!r}"))

        threading.Thread(target=look, name="hivelock-look", daemon=True).start()
        return await asyncio.wait_for(asyncio.wrap_future(looking), LOOK_S)

    async def _lapses(self, owner: Owner) -> bool:
        """Whether a lease of which it cannot be told here who works under it is not renewed: its run is over."""
        try:
            return judge_owner(owner, *await comms.run_of(owner)).stale
        except CannotTell:
            return False

    async def _renew(self, manager: LockManager, lease: Lease) -> None:
        try:
            await asyncio.to_thread(manager.renew, lease)
        except (LockLost, ExceedsMaxLeaseTime) as error:
            self.log.info("Not renewed: %s", error)
        except StoreUnavailable:
            raise
        except HiveLockError as error:  # this one alone: the others have to be renewed all the same
            self.log.warning("Lease %s cannot be renewed: %s", lease.id, error)
        except Exception:
            self.log.exception("Lease %s cannot be renewed", lease.id)

    async def _load(self) -> tuple[HiveLockHook, bool]:
        """The connection, and whether Airflow answers; where it does not, as while its database is away, as it was last."""
        hook = HiveLockHook(self.hivelock_conn_id)
        try:
            await comms.load(hook)
        except (InvalidRequest, TimeoutError) as error:  # Airflow's SDK takes a database that is away for no connection
            if isinstance(error, InvalidRequest) and await comms.answers():
                self._hook = None
                raise
            if self._hook is None:
                raise CannotTell(f"Airflow does not give connection {self.hivelock_conn_id!r}") from error
            self.log.warning("Going by what connection %r said before: %r", self.hivelock_conn_id, error)
            return self._hook, False
        self._hook = hook
        return hook, True


class _Trial:
    """Whether a connection has ever worked, as it is now; and if not, when to try it again."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._good: Settings | None = None
        self._bad: Settings | None = None
        self._since = self._again_at = self._pause_s = 0.0

    def is_due(self, settings: Settings | None) -> bool:
        return settings != self._bad or time.monotonic() >= self._again_at

    def worked(self, settings: Settings) -> None:
        self._good, self._bad, self._pause_s = settings, None, 0.0

    def failed(self, settings: Settings | None, most_s: float) -> tuple[float, float]:
        """For how long it has failed, and how long to leave it alone, in seconds; 0 for one that has worked before.

        :param most_s: how long to leave it alone at most.
        """
        now = time.monotonic()
        if settings is not None and settings == self._good:
            return 0.0, 0.0
        if settings != self._bad or not self._pause_s:
            self._since, self._pause_s = now, self._every_s / 2
        self._bad = settings
        self._pause_s = min(self._pause_s * 2, most_s)
        self._again_at = now + self._pause_s
        return now - self._since, self._pause_s


async def _by_airflow(owner: Owner, lease: Lease) -> Verdict:
    if is_for_its_task(owner, lease) and (verdict := judge_task(owner, await comms.state_of(owner))).stale:
        return verdict
    return judge_owner(owner, *await comms.run_of(owner))


async def _tasks_in_doubt(dag_id: str, owned: Sequence[tuple[Owner, T]]) -> AsyncIterator[tuple[Owner, T]]:
    """Those whose task may be over, by few questions."""
    for run_ids in _parts(sorted({owner.run_id for owner, _ in owned})):
        states = await comms.states_in(dag_id, run_ids, {owner.task_id for owner, _ in owned})
        for owner, thing in owned:
            key = owner.task_id if owner.map_index < 0 else f"{owner.task_id}_{owner.map_index}"
            if owner.run_id in run_ids and states.get(owner.run_id, {}).get(key) in (None, *comms.FINISHED):
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
    """Whether a third of it has passed: its task does not renew it."""
    return lease.expires is not None and (lease.expires - now).total_seconds() < lease.lease_s * 2 / 3


def _parts(items: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(items)
    while part := list(islice(rest, AT_ONCE)):
        yield part


def suspect_leases(hivelock_conn_id: str = HiveLockHook.default_conn_name) -> Asset:
    """Schedule a DAG on it that is not paused, and the keeper of that connection always runs. The DAG starts when there are
    leases that are over, or unknown, of which the keeper cannot tell whether work goes on under them.
    """
    name = "hivelock_suspect_leases"
    name += "" if hivelock_conn_id == HiveLockHook.default_conn_name else f"_{hivelock_conn_id}"
    return Asset(name, watchers=[AssetWatcher(name="keeper", trigger=HiveLockKeeper(hivelock_conn_id))])


SUSPECT_LEASES = suspect_leases()
"""Of the connection ``hivelock_default``."""
