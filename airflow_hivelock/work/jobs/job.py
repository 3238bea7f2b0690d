"""What every kind of job has: it is asked for and ended through a connection, from wherever its lease is."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks.errors import CannotTell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

STOP_S = 120.0
"""How long a cluster may take to end a job that it was told to end."""

POLL_S = 0.5
MOST_POLL_S = 5.0
"""How soon a cluster is asked again: later each time, up to the latter."""


NOT_FOUND = 404


class NotFound(CannotTell):
    """The cluster answers that it has no such job: it has forgotten it, or another cluster has it."""


class Job(ABC):
    """A job that a cluster runs, in words that another process can take up; a frozen dataclass.

    What it records, it also checks (``__post_init__``), for it comes out of a store; and nothing of it is secret.
    Its module imports no provider before it asks.
    """

    kind: ClassVar[str]
    """Its name in the entry point group ``airflow_hivelock.jobs``, and on leases."""

    operators: ClassVar[Mapping[str, str]] = {}
    """By the path of an operator's class, the attribute that this, or one derived from it, sets once it has submitted."""

    package: ClassVar[str] = ""
    """The distribution that is needed to ask."""

    over_with_success: ClassVar[bool] = False
    """Whether it has always ended once its operator's ``execute`` has returned."""

    @classmethod
    @abstractmethod
    def of(cls, operator: Any) -> Self | None:
        """What *operator* has submitted; None as long as it has not.

        It may also be what it has tried to submit, if its name is known: it is asked once more when ``execute()`` is left.
        """

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        """Have *record* called with what *operator* submits, where its attribute tells that late or never.

        It is called before the operator works.
        """
        return  # for most

    @abstractmethod
    def running(self) -> bool:
        """Whether it has not ended, by the cluster's word.

        :raises CannotTell: the cluster does not answer, or does not know.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Tell the cluster to end it.

        :raises CannotTell: that could not be told.
        """

    def reconnects(self, operator: Any, context: Any) -> bool:
        """Whether ``execute()`` of *operator*, a later try, goes on with it while it runs, and submits no other."""
        return False

    def stop(self) -> None:
        """Have the cluster end it, and wait until it has.

        :raises CannotTell: the cluster does not answer, or it does not end.
        """
        self.cancel()
        if not self.ends(STOP_S, cancelled=True):
            raise CannotTell(f"{self} did not end within {STOP_S:g} s of being cancelled")

    def ends(self, patience_s: float, *, cancelled: bool = False) -> bool:
        """Whether it has ended within *patience_s*: a cluster says so some time after it was told to end it.

        :param cancelled: whether the cluster was told to end it, and so may have forgotten it since.
        :raises CannotTell: as :meth:`running`.
        """
        deadline, pause_s = time.monotonic() + patience_s, POLL_S
        try:
            while self.running():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                time.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 1.5, MOST_POLL_S)
        except NotFound:
            if not cancelled:
                raise
        return True

    @contextmanager
    def asking(self, conn_id: str) -> Iterator[None]:
        """Around each call of a provider: whatever it raises becomes CannotTell."""
        try:
            yield
        except CannotTell:
            raise
        except ImportError as error:
            raise CannotTell(f"{self} cannot be asked for here: install {self.package or error}") from error
        except Exception as error:
            if any(_status(each) == NOT_FOUND for each in chain(error)):
                raise NotFound(f"{self} is not known to connection {conn_id!r} (any more): {error!r:.500}") from error
            raise CannotTell(f"{self} cannot be asked for through connection {conn_id!r}: {error!r:.500}") from error


def lost_answer(error: BaseException) -> bool:
    """Whether *error* came after a request was sent: what that asked for may have been done."""
    found = list(chain(error))
    if any(isinstance(each, ConnectionRefusedError) or "Connect" in type(each).__name__ for each in found):
        return any(isinstance(each, ConnectionResetError) for each in found)
    return any(isinstance(each, TimeoutError) or "Timeout" in type(each).__name__ for each in found)


def chain(error: BaseException) -> Iterator[BaseException]:
    """*error*, and what it came of."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _status(error: BaseException) -> Any:
    """The HTTP status in an error of requests, aiohttp or Kubernetes; None for another."""
    return getattr(getattr(error, "response", None), "status_code", getattr(error, "status", None))
