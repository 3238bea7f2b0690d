"""Asks clusters with a time limit, so that a missing answer does not harm the calling process.

A provider's code can wait for ever, or raise SystemExit. So a separate thread asks each question. An exception in
another thread, as when Airflow ends a task, never counts as an answer.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock.locks.errors import CannotTell

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ANSWER_S = 10.0
"""The time-out of one request to a cluster, in seconds. It replaces the time-out of the provider's hook."""

ASK_S = 30.0
"""The time limit of one question, in seconds. It includes imports, the connection, and repeated requests."""

MOST_UNANSWERED = 64
"""The largest number of questions without an answer. Each of them is a thread. A further question waits for room."""


class _Question:
    def __init__(self, ask: Callable[[], Any]) -> None:
        self.began = time.monotonic()
        self.done = threading.Event()
        self.answer: Any = None
        self.error: BaseException | None = None
        self._ask = ask
        self.thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), name="hivelock-asks", daemon=True
        )

    def _run(self) -> None:
        _here.asks = True
        try:
            self.answer = self._ask()
        except BaseException as error:  # noqa: BLE001 - SystemExit, say, of a module that is a program
            self.error = error
        finally:
            self.done.set()
            with _room:
                _room.notify_all()


_here = threading.local()
_asked: dict[str, _Question] = {}
_room = threading.Condition(threading.RLock())  # reentrant: a signal handler can ask in the same thread


def in_time(what: str, ask: Callable[[], T], within_s: float = ASK_S) -> T:
    """Return the result of *ask*.

    :param what: identifies the question. Threads that ask the same question at the same time share its answer.
    :param within_s: the time limit in seconds.
    :raises CannotTell: it takes longer, or it raises an exception that ends a process.
    :raises Exception: what *ask* raises.
    """
    if getattr(_here, "asks", False):
        return ask()  # a part of another question, which has a time limit
    until = time.monotonic() + within_s
    question = _put(what, ask, until)
    if not question.done.wait(max(0.0, min(until, question.began + within_s) - time.monotonic())):
        raise CannotTell(f"no answer within {within_s:g} s")
    if question.error is None:
        answer: T = question.answer
        return answer
    if isinstance(question.error, Exception):
        raise question.error
    raise CannotTell(f"it raised {question.error!r}") from question.error


def _put(what: str, ask: Callable[[], Any], until: float) -> _Question:
    """Start the question, or return the same one of another thread.

    Wait for room, because a keeper can ask about hundreds of jobs at once. Otherwise only the first ones would be asked.
    """
    with _room:
        _room.wait_for(lambda: _has_room(what), max(0.0, until - time.monotonic()))
        if (question := _asked.get(what)) is not None:
            return question
        if len(_asked) >= MOST_UNANSWERED:
            raise CannotTell(f"{len(_asked)} earlier questions to clusters are still without an answer")
        question = _asked[what] = _Question(ask)
        question.thread.start()
        return question


def _has_room(what: str) -> bool:
    # Check the answer, not the thread, which can live a moment longer. A later question gets a new answer.
    for each in [key for key, question in _asked.items() if question.done.is_set()]:
        del _asked[each]
    return what in _asked or len(_asked) < MOST_UNANSWERED


def _forget() -> None:
    """Forget the parent's questions in a forked process, because their threads do not exist there."""
    global _room
    _asked.clear()
    _room = threading.Condition(threading.RLock())
    _here.__dict__.pop("asks", None)


os.register_at_fork(after_in_child=_forget)
