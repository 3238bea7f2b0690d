"""The attempt of a task's request.

It is the number of the try, but Airflow counts tries from 1 again in two cases: a run was deleted and created again
under the same id, or Airflow's database was reset. The lock store then still has a later attempt of the owner. It
refuses the new try, as it refuses a slow process of an earlier try. Only Airflow can distinguish these two. If Airflow
confirms that a try is the current one, the try asks again with the number of that later attempt.

- A task asks Airflow. A try has an id of its own, and Airflow replaces it before the next try.
- A trigger cannot ask this. It ends, and Airflow starts it again only if the same try still waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hivelock import comms
from airflow_hivelock.locks.errors import CannotTell, Superseded

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MOST = 10_000
"""The most tries that a process remembers. A forgotten try is only refused once more."""

_later: dict[Any, int] = {}
"""The later attempt that refused a try, by the id of the try."""


def of(ti: Any, attempt: int) -> int:
    """The attempt of a request of *ti*.

    :param attempt: its own number, which is the number of its try.
    """
    later = _later.get(getattr(ti, "id", None))
    return attempt if later is None else max(attempt, later)  # a malformed attempt is refused with the request


def remember_refusal(ti: Any, attempt: int, error: Superseded) -> None:
    """Remember the later attempt that refused the request of *ti* with *attempt*.

    Call this only if the next request of *ti* is made after Airflow has confirmed it.
    """
    if ti is None or error.attempt <= attempt:
        return
    if len(_later) >= MOST:
        del _later[next(iter(_later))]
    _later[ti.id] = error.attempt


def as_current_try(ti: Any, ask: Callable[[], T], log: Any) -> T:
    """Return the result of *ask* in the process of *ti*. If a later attempt refuses it, ask Airflow, and then again.

    :raises Superseded: Airflow does not confirm that *ti* is the current try of its task.
    """
    try:
        return ask()
    except Superseded as error:
        attempt = of(ti, ti.try_number)
        if error.attempt <= attempt or not _is_current(ti, log):
            raise
        remember_refusal(ti, attempt, error)
        log_again(log, error.attempt)
    return ask()


def log_again(log: Any, attempt: int) -> None:
    """Log why a request has another attempt than its try."""
    log.info("Airflow has counted the tries of this task from 1 again. This try continues after attempt %d", attempt)


def _is_current(ti: Any, log: Any) -> bool:
    try:
        return comms.is_current(ti)
    except CannotTell as error:
        log.warning("A later attempt may act for this task: %s", error)
        return False
