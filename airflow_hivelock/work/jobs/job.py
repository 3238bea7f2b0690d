"""What every kind of job has: it is asked for and ended through a connection, from wherever its lease is."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ASK_S, in_time
from airflow_hivelock.work.jobs import trust

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

STOP_S = 120.0
"""How long a cluster may take to end a job that it was told to end."""

POLL_S = 0.5
MOST_POLL_S = 5.0
"""How soon a cluster is asked again: later each time, up to the latter."""


CANCEL_S = 90.0
"""How long it may take to tell a cluster to end a job. ``spark-submit --kill`` starts a JVM for that."""

_ASKS = {"running": ASK_S, "reconnects": ASK_S, "cancel": CANCEL_S}
"""The methods that ask a cluster, and how long each may take."""

NOT_FOUND = 404


class NotFound(CannotTell):
    """The cluster answers that it has no such job: it has forgotten it, or another cluster has it."""


class Job(ABC):
    """A job that a cluster runs, in words that another process can take up; a frozen dataclass.

    It checks what it records (``__post_init__``), because it comes out of a store. None of it is secret.
    Its module imports no provider before it asks.

    ``running``, ``cancel`` and ``reconnects`` of each kind run in a separate thread, for a limited time. Every error of
    theirs becomes CannotTell.
    """

    kind: ClassVar[str]
    """Its name in the entry point group ``airflow_hivelock.jobs``, and on leases."""

    operators: ClassVar[Mapping[str, str]] = {}
    """By the path of an operator's class, the attribute that this, or one derived from it, sets once it has submitted."""

    package: ClassVar[str] = ""
    """The distribution that is needed to ask."""

    conn_types: ClassVar[Collection[str]] = ()
    """The types of connections that its hook is for. A record that leads to another one is not asked for. Empty where
    the kind itself looks at the connection."""

    over_with_success: ClassVar[bool] = False
    """Whether it has always ended once its operator's ``execute`` has returned."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Have each kind ask in the same way, those of other packages too."""
        super().__init_subclass__(**kwargs)
        for name, within_s in _ASKS.items():
            if name in vars(cls):
                setattr(cls, name, _asking(vars(cls)[name], within_s))

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

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        """What *operator*, of a task in this process, itself names: a record may then name it here (:mod:`trust`)."""
        return ()

    def check(self) -> None:
        """Whether a record may lead to what it names. It is called before each question.

        :raises CannotTell: it may not.
        """
        if self.conn_types:
            self.extra()

    def extra(self) -> dict[str, Any]:
        """The extra of its connection.

        :raises CannotTell: the connection is not one of ``conn_types``.
        """
        return trust.check_connection(_conn_id(self), self.conn_types)


def _asking(method: Callable[..., Any], within_s: float) -> Callable[..., Any]:
    """*method* of a job, in time. Every error of it becomes CannotTell."""

    @wraps(method)
    def asked(self: Job, *args: Any) -> Any:
        if args:  # a later try asks, with its operator
            trust.learn(self.names_of(args[0]))

        def ask() -> Any:
            self.check()
            return method(self, *args)

        try:
            return in_time(f"{method.__qualname__} of {self!r}", ask, within_s)
        except CannotTell as error:
            if type(error) is not CannotTell or str(self) in str(error):
                raise
            raise CannotTell(f"{self} cannot be asked for: {error}") from error
        except ImportError as error:
            raise CannotTell(f"{self} cannot be asked for here: install {self.package or error}") from error
        except Exception as error:
            where = f"through connection {_conn_id(self)!r}"
            if any(_status(each) == NOT_FOUND for each in chain(error)):
                raise NotFound(f"{self} is not known {where} (any more): {error!r:.500}") from error
            raise CannotTell(f"{self} cannot be asked for {where}: {error!r:.500}") from error

    return asked


def knows(operator: Any, context: Any, job_id: int | str) -> bool:
    """Whether *operator*, a ResumableJobMixin of a later try, finds that job in Airflow's store and goes on with it."""
    store = context.get("task_state_store") if getattr(operator, "durable", False) else None
    if store is None:
        return False
    if store.get(operator.external_id_key) != job_id:
        store.set(operator.external_id_key, job_id)  # it was killed between the lease's record and Airflow's
    return True


def _conn_id(job: Job) -> str:
    return str(getattr(job, "conn_id", ""))


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
