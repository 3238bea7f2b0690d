"""Triggers that wait for locks in the triggerer, where a wait uses no worker slot.

All waiters of a triggerer share one lock manager, and so one session with the lock store. Blocking calls run in a few
threads of the connection. The event loop only waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from airflow_hivelock import comms, compat
from airflow_hivelock.locks.backend import NeedsSlot
from airflow_hivelock.locks.errors import CannotTell, HiveLockError, InvalidRequest, LockTimeout, Superseded
from airflow_hivelock.locks.model import MAX_INVITATION_S, Lease
from airflow_hivelock.spec import FIELDS, OFF, LeaseTerms, LockSpec, Owner
from airflow_hivelock.templates import StrictNames
from airflow_hivelock.triggers.ahead import RunsAhead
from airflow_hivelock.triggers.arguments import Further, written
from airflow_hivelock.triggers.connection import hook_of
from airflow_hivelock.triggers.keeper import HiveLockKeeper
from airflow_hivelock.triggers.threads import Threads, of_waiters
from airflow_hivelock.waiting import Look, Wait, attempts
from airflow_hivelock.waiting.rounds import FIRST, Round, resume_s
from airflow_hivelock.work.stale import keep_for_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.waiting import Ask, Polled

T = TypeVar("T")

AGAIN_S = 5.0
"""The pause of a superseded trigger before its end, in seconds, because Airflow can start it again at once."""

_keepers: dict[str, asyncio.Task[None]] = {}


class LockTrigger(StrictNames, BaseTrigger):
    """The base class of the triggers. ``__init__`` only stores values, because an error there would end the triggerer.

    :param owner: the owner, if a worker has deferred. Empty if the task starts in the triggerer, which then also
        renders the task's fields.
    :param spec: the fields of a :class:`LockSpec`. They become attributes, because Airflow renders attributes.
    """

    def __init__(
        self,
        *,
        hivelock_conn_id: str,
        timeout_s: float | None = None,
        owner: str = "",
        attempt: int = 0,
        **spec: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hivelock_conn_id = hivelock_conn_id
        for name in FIELDS:
            setattr(self, name, spec.pop(name, getattr(LockSpec, name, None)))
        self.timeout_s = timeout_s
        self.owner = owner
        self.attempt = attempt
        self._further = Further(spec)
        self._task_owner: Owner | None = None
        self._refused: Exception | None = None
        self._call: asyncio.Future[Any] | None = None
        self._threads: Threads

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = written(type(self), self._arguments())
        return f"{type(self).__module__}.{type(self).__name__}", arguments | self._further.fields()

    def _arguments(self) -> dict[str, Any]:
        """The arguments of this version, with their values."""
        return {
            "hivelock_conn_id": self.hivelock_conn_id,
            **asdict(LockSpec.of(self)),
            "timeout_s": self.timeout_s,
            "owner": self.owner,
            "attempt": self.attempt,
        }

    def render_template_fields(self, context: Any, jinja_env: Any = None) -> None:
        """Render the fields like Airflow. Leave an error to ``run()``: here it would use a slot and not be shown.

        A worker that has deferred has rendered them. Their text can come from the run's configuration, so a second time
        would run templates of users, with the passwords of connections in reach.
        """
        try:
            if not self.owner:
                super().render_template_fields(context, jinja_env)
        except HiveLockError as error:
            self._refused = error
        except Exception as error:  # noqa: BLE001 - a user's template can raise any exception
            self._refused = InvalidRequest(f"reads and writes cannot be rendered in the triggerer: {error!r}")
        finally:
            comms.forget_dag(context, self.task_instance)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            self._further.check(self.log)
            event = await self._event()
        except Superseded as error:
            self.log.info(
                "Another process acts for this task. Airflow starts this trigger again if it still needs it: %s", error
            )
            attempts.remember_refusal(self.task_instance, self._attempt(), error)
            await asyncio.sleep(AGAIN_S)
            # End as if cancelled. Then Airflow starts the trigger again if it still belongs to this triggerer. Any
            # other end without an event fails the task. Without an end, no trigger would wait for a task that comes back.
            raise asyncio.CancelledError from None
        except HiveLockError as error:
            self.log.error("%s", error)
            event = self._failure(error)
            if isinstance(event, TaskFailedEvent) and not compat.TRIGGERS_RETRY:
                raise
        yield event
        # Wait until Airflow has stored the event, because it has then read all log lines before the event. Lines after
        # the event or after the trigger's end can be missing in the task's log.
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as cancelled:
            if not comms.ended_by_airflow(cancelled):
                raise
            await _to_the_end(self._let_go())  # for on_kill() Airflow would log a user's action

    async def on_kill(self) -> None:
        """Clean up after a user has acted on the task, or after another triggerer has taken over the trigger."""
        await _to_the_end(self._let_go())

    async def cleanup(self) -> None:
        """Clean up in an Airflow without ``on_kill()``. Airflow calls this at every end of a trigger."""
        if not compat.TRIGGERS_HEAR_OF_KILLS:
            await self.on_kill()

    async def _event(self) -> TriggerEvent:
        """Return the event for Airflow.

        :raises HiveLockError: an error for the user.
        """
        raise NotImplementedError

    def _failure(self, error: HiveLockError) -> TriggerEvent:
        return TaskFailedEvent()

    async def _let_go(self) -> None:
        """Remove a request or a lease that the task does not need."""

    def _spec(self) -> LockSpec:
        """The declared locks. Raise HiveLockError if they are invalid."""
        if self._refused is not None:
            raise self._refused
        if self.timeout_s is not None and not isinstance(self.timeout_s, int | float):
            raise InvalidRequest(f"timeout_s={self.timeout_s!r} must be seconds, or None for no end")
        return LockSpec.of(self)

    async def _outcome(self, start: Callable[[Ask, float | None, Callable[[], None]], Polled[T]]) -> T | None:
        """Poll the result of *start* until it has an outcome, and return that. None if locking is turned off.

        :param start: makes the wait. It gets the first arguments of :class:`.Wait` and :class:`.Look`.
        :raises HiveLockError: an error for the user.
        """
        spec = self._spec()
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed, so the wait is over
                loop.call_soon_threadsafe(changed.set)

        hook = await self._hook()
        owner = self._task_owner = self._owner(hook)
        if not await self._in_pool(lambda: spec.takes_locks(hook, self.log)):  # this can read SQL
            return None
        _keep_leases(self.hivelock_conn_id)
        if later := attempts.of(self.task_instance, 0):
            attempts.log_again(self.log, later)

        def begin() -> Polled[T]:
            timeout_s = spec.timeout_s(hook) if self.timeout_s is None else self.timeout_s
            options = {"wait": timeout_s != 0} | self._options(hook)
            return start(
                lambda: (hook.manager(), spec.request(hook, owner, self._attempt(), **options)), timeout_s, wake
            )

        polled = await self._in_pool(begin)
        async with RunsAhead(owner, lambda: polled.manager, self.log) as ahead:
            while (outcome := await self._in_pool(polled.poll)) is None:
                ahead.ask_about(polled.seen.take_marked())
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), polled.wait_s())
                changed.clear()
            await ahead.ask_last(polled.seen.take_marked())
        return outcome

    async def _hook(self) -> HiveLockHook:
        """The hook of the connection. After this, :meth:`_in_pool` uses the connection's threads."""
        hook = await hook_of(self.hivelock_conn_id, self.log)
        self._threads = of_waiters(hook)
        return hook

    def _options(self, hook: HiveLockHook) -> dict[str, Any]:
        return {}

    def _owner(self, hook: HiveLockHook) -> Owner:
        owner = Owner.parse(self.owner) if self.owner else Owner.of(hook.installation, self.task_instance)
        if owner is None:
            raise InvalidRequest(f"{self.owner!r} is not the owner of a task. Clear the task, so that it starts again")
        return owner

    def _attempt(self) -> int:
        ti = self.task_instance
        return attempts.of(ti, self.attempt if self.owner or ti is None else ti.try_number)

    async def _in_pool(self, function: Callable[[], T]) -> T:
        """Run a blocking call in a thread. Return its result. Cancellation does not stop it: see :meth:`_settled`."""
        call = self._threads.start(function)
        call.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._call = call
        return await asyncio.shield(call)

    async def _settled(self) -> None:
        """Wait for the blocking call that ran when this trigger was cancelled."""
        if self._call is not None:
            await asyncio.wait([self._call])


class HiveLockTrigger(LockTrigger):
    """Acquires locks, or waits for the request's turn. The queue position survives restarts of the triggerer.

    :param lease_s: the duration of the lease without renewal, in seconds.
    :param ends_task: True ends the task with the lease as its XCom. False resumes the task on a worker with the lease.
    :param warning: a text to log when the locks are acquired.
    :param terms: the fields of :class:`LeaseTerms`, and :meth:`.Round.arguments`. In a round with a deferred grant, the
        trigger acquires no locks, and resumes the task at the request's turn.
    """

    round_number: int
    unanswered: int

    def __init__(
        self,
        *,
        lease_s: float,
        ends_task: bool = True,
        warning: str = "",
        **terms: Any,
    ) -> None:
        for name, default in (asdict(LeaseTerms()) | FIRST.arguments()).items():
            setattr(self, name, terms.pop(name, default))
        super().__init__(**terms)
        self.lease_s = lease_s
        self.ends_task = ends_task
        self.warning = warning
        self._wait: Wait | None = None
        self._succeeded = False

    def _arguments(self) -> dict[str, Any]:
        return {
            **super()._arguments(),
            **asdict(LeaseTerms.of(self)),
            "lease_s": self.lease_s,
            "ends_task": self.ends_task,
            "warning": self.warning,
            **{name: getattr(self, name) for name in FIRST.arguments()},
        }

    async def _event(self) -> TriggerEvent:
        begun = asyncio.get_running_loop().time()
        outcome = await self._outcome(self._start_wait)
        if isinstance(outcome, Lease) and self.round_number:
            assert self._wait is not None
            outcome = await self._in_pool(partial(keep_for_task, self._wait.manager, outcome, self.log))
        value = self._value(outcome)
        if isinstance(outcome, Lease) and self.warning:
            self.log.warning("%s", self.warning)
        if not self.ends_task:
            if self.owner:
                await asyncio.sleep(begun + resume_s(self.unanswered) - asyncio.get_running_loop().time())
            return TriggerEvent(value)  # type: ignore[no-untyped-call]
        assert self._task_owner is not None
        await comms.push_xcom(self._task_owner, value)
        self._succeeded = True
        return TaskSuccessEvent()

    async def _let_go(self) -> None:
        """If the task is over, drop the queue position or the lease. Otherwise leave the position to the next trigger.

        Airflow drops the event of a task that was marked failed, so no task would ever release its lease.
        """
        await self._settled()
        if self._wait is None or self._task_owner is None:
            return
        try:
            state = await comms.state_of(self._task_owner)
        except CannotTell as error:
            self.log.warning("Keeping the queue position or the lease: %s", error)
            state = ""
        over = state is None or state in comms.FINISHED
        if over and not (self._succeeded and state == "success"):
            if await self._in_pool(self._wait.give_up):
                self.log.info(
                    "The task is %s, so its request has left the queue, or its lease is released", state or "gone"
                )
        elif self._wait.outcome is None:
            await self._in_pool(self._wait.hand_over)
            self.log.info("The queue position is kept for the process that waits for the task now")

    def _value(self, outcome: Lease | NeedsSlot | None) -> dict[str, Any]:
        """The value for the task or its worker. Log whether the locks are held while the task waits for a worker."""
        if outcome is None:
            return OFF
        if isinstance(outcome, NeedsSlot):
            assert self._wait is not None
            now = self._wait.round()
            after = f" after {now.past}" if now.waited_s >= 1 else ""
            kept = f"with its position until {outcome.until:%H:%M:%S}Z" if outcome.until else "without a position"
            self.log.info("Free%s: %s; waiting for a worker slot, %s (%s)", after, self._wait.wanted, kept, now)
            return now.turn_event(outcome.until)
        if self.ends_task:
            return outcome.to_json()
        self.log.info("Keeping the locks until the task has a worker slot")
        assert self._wait is not None
        return outcome.to_json() | self._wait.round().lease_event()

    def _options(self, hook: HiveLockHook) -> dict[str, Any]:
        before, invitation_s = Round.of_trigger(self), hook.settings.invitation_s
        if self.owner and invitation_s:  # the trigger can wait so long before it resumes its task
            invitation_s = min(invitation_s + resume_s(self.unanswered), MAX_INVITATION_S)
        return {
            "terms": LeaseTerms.of(self),
            "lease_s": self.lease_s,
            "deferred": before.deferred(invitation_s),
            "asked": before.asked,
        }

    def _start_wait(self, ask: Ask, timeout_s: float | None, wake: Callable[[], None]) -> Polled[Lease | NeedsSlot]:
        before = Round.of_trigger(self)
        if before.number > 1:
            self.log.info("%s of waiting. Before it: %s", str(before).capitalize(), before.past)
        self._wait = Wait(ask, timeout_s, wake, self.log, before)
        return self._wait


class HiveLockSensorTrigger(LockTrigger):
    """Waits until the locks are free, and acquires none. Its time-out starts again when the triggerer restarts.

    :param soft_fail: after the time-out, skip the task instead of failing it.
    """

    def __init__(self, *, soft_fail: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.soft_fail = soft_fail

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "soft_fail": self.soft_fail}

    async def _event(self) -> TriggerEvent:
        await self._outcome(lambda ask, timeout_s, wake: Look(ask, timeout_s, wake, self.log))
        return TaskSuccessEvent()

    def _failure(self, error: HiveLockError) -> TriggerEvent:
        return TaskSkippedEvent() if self.soft_fail and isinstance(error, LockTimeout) else TaskFailedEvent()


def _keep_leases(conn_id: str) -> None:
    """Start a keeper in each triggerer with waiters, because Airflow cannot start one if waiters fill the triggerer."""
    loop = asyncio.get_running_loop()
    keeping = _keepers.get(conn_id)
    if keeping is None or keeping.done() or keeping.get_loop() is not loop:
        # In a new context, because with the context of the first waiter the keeper would write to that task's log.
        _keepers[conn_id] = loop.create_task(_keep(conn_id), context=contextvars.Context())


async def _keep(conn_id: str) -> None:
    async for _ in HiveLockKeeper(conn_id, ends=True).run():
        pass  # the keeper of the asset starts the force release


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await *work*, although Airflow cancels a trigger every second until it has ended."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    await task
