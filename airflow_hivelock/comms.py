"""Questions to Airflow through its private functions. A process asks its supervisor.

Tasks, triggers and callbacks each have a supervisor, even a callback in the DAG processor. The supervisors have a few
messages in common, and this module sends only those.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow.providers.common.compat.sdk import DagRunState, TaskInstanceState, XCom
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    GetDagRunState,
    GetDRCount,
    GetTaskStates,
    SetXCom,
    ValidateInletsAndOutlets,
)

from airflow_hivelock import compat
from airflow_hivelock.locks.errors import CannotTell, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from airflow_hivelock.hooks import HiveLockHook
    from airflow_hivelock.spec import Owner

T = TypeVar("T")

ANSWER_S = 120.0
"""The longest time that a trigger waits for its supervisor's answer, in seconds.

At the first question, the supervisor starts its own API server. That took 22 s on a busy machine.
"""

FINISHED = frozenset(
    {
        TaskInstanceState.SUCCESS,
        TaskInstanceState.FAILED,
        TaskInstanceState.SKIPPED,
        TaskInstanceState.UPSTREAM_FAILED,
        TaskInstanceState.REMOVED,
    }
)
"""A task instance leaves these states only when it is cleared."""

FINISHED_RUN = frozenset({DagRunState.SUCCESS, DagRunState.FAILED})

_mended: set[type] = set()
"""The classes of supervisor connections that :func:`_let_threads_ask` has changed."""


class SharedAnswers(Generic[T]):
    """Answers that many triggers of one event loop share, because hundreds ask the same at once.

    :param fresh_s: for how long an answer is used, in seconds from its question.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._asked: dict[str, tuple[float, asyncio.Task[T]]] = {}

    async def of(self, what: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of *ask*, or of an earlier question with the same *what*."""
        loop = asyncio.get_running_loop()
        for key in [
            key for key, (until, asking) in self._asked.items() if loop.time() > until or asking.get_loop() is not loop
        ]:
            del self._asked[key]
        if what not in self._asked:
            self._asked[what] = loop.time() + self._fresh_s, loop.create_task(ask())
        return await asyncio.shield(self._asked[what][1])

    def forget(self, what: str) -> None:
        """Ask again the next time."""
        self._asked.pop(what, None)


def read_metadata() -> None:
    """Let this ``airflow`` command find connections in Airflow's database, as Airflow's own commands do."""
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"


def ended_by_airflow(cancelled: asyncio.CancelledError) -> bool:
    """Whether Airflow cancelled a trigger because its task no longer waits for it. False: the triggerer itself ends."""
    return bool(cancelled.args)


async def load(hook: HiveLockHook) -> None:
    """Load the connection of *hook* in a trigger.

    :raises InvalidRequest: there is no such connection, or it is invalid.
    :raises CannotTell: Airflow did not answer.
    """
    _let_threads_ask()
    try:
        await asyncio.wait_for(hook.load(), ANSWER_S)
    except (InvalidRequest, TimeoutError) as error:
        # Without its database, Airflow reports that there is no such connection.
        if isinstance(error, InvalidRequest) and await _answers():
            raise
        raise CannotTell(f"Airflow did not return connection {hook.hivelock_conn_id!r}") from error


async def push_xcom(owner: Owner, value: Any) -> None:
    """Store *value* as the return value of the owner's task, from a trigger.

    A value in a ``TaskSuccessEvent`` would arrive as a JSON string.
    """
    where: dict[str, Any] = {
        "dag_id": owner.dag_id,
        "run_id": owner.run_id,
        "task_id": owner.task_id,
        "map_index": owner.map_index,
    }
    if hasattr(_supervisor(), "asend"):
        await _ask(SetXCom(key="return_value", value=XCom.serialize_value(value, key="return_value", **where), **where))
    else:  # dag.test()
        XCom.set("return_value", value, **where)


def key_of(owner: Owner) -> str:
    """Airflow's name of the owner's task instance among the states of a run."""
    return owner.task_id if owner.map_index < 0 else f"{owner.task_id}_{owner.map_index}"


async def state_of(owner: Owner) -> str | None:
    """The state of the owner's task instance, from a trigger. None: Airflow does not know the task.

    ``""``: the task instance has no state yet.

    :raises CannotTell: Airflow did not answer.
    """
    question = GetTaskStates(
        dag_id=owner.dag_id, run_ids=[owner.run_id], task_ids=[owner.task_id], map_index=owner.map_index
    )
    with _or_cannot_tell(f"the state of {owner}"):
        states = (await _ask(question)).task_states.get(owner.run_id, {})
    return next((state or "" for state in states.values()), None)


async def run_of(owner: Owner) -> tuple[str | None, dict[str, str]]:
    """The results of :func:`run_state` and :func:`all_task_states` for the owner's run, from a trigger.

    :raises CannotTell: Airflow did not answer.
    """
    question = GetDagRunState(dag_id=owner.dag_id, run_id=owner.run_id)
    with _or_cannot_tell(f"the state of run {owner.run_id} of {owner.dag_id}"):
        try:
            state = DagRunState((await _ask(question)).state).value
        except AirflowRuntimeError as error:
            if _is_unknown(error):
                return None, {}
            raise
        states = (await _ask(GetTaskStates(dag_id=owner.dag_id, run_ids=[owner.run_id]))).task_states
    return state, {key: state or "" for key, state in states.get(owner.run_id, {}).items()}


async def all_go_on(dag_id: str, run_ids: Sequence[str]) -> bool:
    """Whether Airflow knows all of these runs, and none of them has ended. Asked from a trigger.

    :raises CannotTell: Airflow did not answer.
    """
    going = [DagRunState.QUEUED.value, DagRunState.RUNNING.value]
    with _or_cannot_tell(f"the states of {len(run_ids)} runs of {dag_id}"):
        answer = await _ask(GetDRCount(dag_id=dag_id, run_ids=list(run_ids), states=going))
        return int(answer.count) == len(run_ids)


async def states_in(dag_id: str, run_ids: Sequence[str], task_ids: Iterable[str]) -> dict[str, dict[str, str]]:
    """The states of these tasks, from a trigger: for each run, by Airflow's name of the task instance.

    :raises CannotTell: Airflow did not answer.
    """
    question = GetTaskStates(dag_id=dag_id, run_ids=list(run_ids), task_ids=sorted(task_ids))
    with _or_cannot_tell(f"the states of tasks of {len(run_ids)} runs of {dag_id}"):
        found = (await _ask(question)).task_states
    return {run_id: {key: state or "" for key, state in states.items()} for run_id, states in found.items()}


def task_states(dag_id: str, run_id: str, task_ids: Iterable[str]) -> dict[tuple[str, int], str]:
    """The states of these tasks of a run, by task id and map index. ``""``: the task has no state yet.

    Each expanded mapped task needs a separate question, because Airflow names its instances ``task_1``.

    :raises CannotTell: Airflow did not answer.
    """
    wanted = list(task_ids)
    if not wanted:
        return {}
    plain = _states(GetTaskStates(dag_id=dag_id, run_ids=[run_id], task_ids=wanted, map_index=-1), run_id)
    states = {(task_id, -1): state for task_id, state in plain.items()}
    for task_id in set(wanted) - plain.keys():
        mapped = _states(GetTaskStates(dag_id=dag_id, run_ids=[run_id], task_ids=[task_id]), run_id)
        states |= {(task_id, int(key[len(task_id) + 1 :] or -1)): state for key, state in mapped.items()}
    return states


def all_task_states(dag_id: str, run_id: str) -> dict[str, str]:
    """The states of all task instances of a run, by Airflow's name of the task instance.

    :raises CannotTell: Airflow did not answer.
    """
    return _states(GetTaskStates(dag_id=dag_id, run_ids=[run_id]), run_id)


def run_state(dag_id: str, run_id: str) -> str | None:
    """The state of a run. None: Airflow does not know the run. The DAG processor cannot ask this.

    :raises CannotTell: Airflow did not answer.
    """
    with _or_cannot_tell(f"the state of run {run_id} of {dag_id}"):
        try:
            return DagRunState(_supervisor().send(GetDagRunState(dag_id=dag_id, run_id=run_id)).state).value
        except AirflowRuntimeError as error:
            if _is_unknown(error):
                return None
            raise


def is_current(ti: Any) -> bool:
    """Whether *ti* is the current try of its task. Asked from the try's own process.

    Airflow replaces the id of a task instance before each further try, and has no other question for a try.

    :raises CannotTell: Airflow did not answer.
    """
    with _or_cannot_tell(f"whether try {ti.try_number} of {ti.task_id} is the current one"):
        try:
            _supervisor().send(ValidateInletsAndOutlets(ti_id=ti.id))
        except AirflowRuntimeError as error:
            if _is_unknown(error):
                return False
            raise
        return True


def forget_dag(context: Any, ti: Any) -> None:
    """Drop the DAG that Airflow gives to a trigger with ``start_from_trigger``: about 1 MB for 300 tasks."""
    context.clear()
    if hasattr(ti, "task"):
        ti.task = None


def _states(question: GetTaskStates, run_id: str) -> dict[str, str]:
    with _or_cannot_tell(f"the states of the tasks of run {run_id}"):
        states = _supervisor().send(question).task_states.get(run_id, {})
    return {key: state or "" for key, state in states.items()}


async def _answers() -> bool:
    """Whether Airflow can answer a trigger from its database."""
    try:
        await _ask(GetDRCount(dag_id="", run_ids=[""]))
    except Exception:  # noqa: BLE001 - any error means that there is no answer
        return False
    return True


async def _ask(question: Any) -> Any:
    """Ask from a trigger, without blocking its event loop."""
    supervisor = _supervisor()
    if hasattr(supervisor, "asend"):
        # Shielded: before Airflow 3.2, a cancelled question receives the answer to the next question.
        return await asyncio.wait_for(asyncio.shield(supervisor.asend(question)), ANSWER_S)
    return supervisor.send(question)  # dag.test()


def _let_threads_ask() -> None:
    """Make a trigger's threads, such as hooks of clusters, ask Airflow through the trigger's event loop.

    Before Airflow 3.2, a thread asks from its own event loop. The next question then receives the thread's answer, and
    the triggerer ends. In Airflow 3.2, a thread waits forever for its answer.
    """
    kind: Any = type(getattr(task_runner, "SUPERVISOR_COMMS", None))
    if compat.TRIGGERS_ASK_FROM_THREADS or kind in _mended or not (hasattr(kind, "asend") and hasattr(kind, "send")):
        return
    loop, here, ask = asyncio.get_running_loop(), threading.get_ident(), kind.send

    def send(self: Any, question: Any) -> Any:
        if threading.get_ident() == here:
            return ask(self, question)
        asked = asyncio.run_coroutine_threadsafe(self.asend(question), loop)
        return asked.result(2 * ANSWER_S)  # the caller's own time-out is shorter

    kind.send = send
    _mended.add(kind)


@contextmanager
def _or_cannot_tell(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CannotTell(f"Airflow did not report {what}: {error!r}") from error


def _is_unknown(error: AirflowRuntimeError) -> bool:
    return bool((error.error.detail or {}).get("status_code") == 404)


def _supervisor() -> Any:
    supervisor = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if supervisor is None:
        raise CannotTell("this process has no connection to Airflow")
    return supervisor
