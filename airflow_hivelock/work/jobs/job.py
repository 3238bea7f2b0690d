"""What every kind of job has: it can be asked about and ended through a connection, from every host that sees its
lease.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.locks.pauses import pauses
from airflow_hivelock.work.asking import ASK_S, in_time
from airflow_hivelock.work.jobs import trust

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    Check = re.Pattern[str] | Callable[[Any, str], Any]
    """What a field may contain: a pattern for the whole text, or a function that returns the value to keep."""

STOP_S = 120.0
"""How long a cluster may take to end a job after the request, in seconds."""

POLL_S = 0.5
MOST_POLL_S = 5.0
"""The pause before a cluster is asked again, in seconds. It grows from the first value to the second."""


CANCEL_S = 90.0
"""How long the request to end a job may take, in seconds. ``spark-submit --kill`` starts a JVM for that."""

_ASKS = {"running": ASK_S, "reconnects": ASK_S, "cancel": CANCEL_S}
"""The methods that ask a cluster, and how long each may take, in seconds."""

NOT_FOUND = 404


class NotFound(CannotTell):
    """The cluster answers that it has no such job: it has forgotten it, or another cluster has it."""


class Job(ABC):
    """A job that a cluster runs, in a form that another process can read; a frozen dataclass.

    Its fields come from a store, so each one is checked. No field is secret. Its module imports a provider only to ask.

    ``running``, ``cancel`` and ``reconnects`` of each kind run in a separate thread, for a limited time. Every error of
    theirs becomes CannotTell.
    """

    kind: ClassVar[str]
    """The kind's name in the entry point group ``airflow_hivelock.jobs``, and on leases."""

    operators: ClassVar[Mapping[str, str]] = {}
    """By the path of an operator's class: the attribute that it, or a subclass, sets when it has submitted the job."""

    package: ClassVar[str] = ""
    """The distribution that is needed to ask the cluster."""

    conn_types: ClassVar[Collection[str]] = ()
    """The types of connections that its hook accepts. A record that names a connection of another type is refused.
    Empty if the kind checks the connection itself.
    """

    checks: ClassVar[Mapping[str, Check]] = {}
    """By field: what a record may contain there. Other values raise ValueError or TypeError."""

    own: ClassVar[Mapping[str, str]] = {}
    """By the names that the operator of a task in this process uses (:mod:`trust`): its attribute for each."""

    shown: ClassVar[str] = ""
    """The text for users; ``{name}`` is the field of that name. Empty: the dataclass's own form."""

    over_with_success: ClassVar[bool] = False
    """Whether the job has always ended when its operator's ``execute`` has returned."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make each kind ask in the same way, also kinds of other packages."""
        super().__init_subclass__(**kwargs)
        for name, within_s in _ASKS.items():
            if name in vars(cls):
                setattr(cls, name, _asking(vars(cls)[name], within_s))

    def __post_init__(self) -> None:
        """Check the fields.

        :raises ValueError: a field has an invalid value.
        """
        for name, check in self.checks.items():
            object.__setattr__(self, name, checked(check, getattr(self, name), name))

    def __str__(self) -> str:
        return self.shown.format_map(vars(self)) if self.shown else repr(self)

    @classmethod
    @abstractmethod
    def of(cls, operator: Any) -> Self | None:
        """Return what *operator* has submitted; None before that.

        A submission without an answer counts if the job's name is known. This is called once more when ``execute()`` ends.
        """

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        """Make *operator* call *record* with what it submits. For operators that set no attribute, or set it late.

        It is called before the operator works.
        """
        return  # most operators need nothing

    @abstractmethod
    def running(self) -> bool:
        """Whether the cluster reports that the job has not ended.

        :raises CannotTell: the cluster does not answer, or does not know the job.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Tell the cluster to end the job.

        :raises CannotTell: the cluster did not accept the request.
        """

    def reconnects(self, operator: Any, context: Any) -> bool:
        """Whether ``execute()`` of *operator*, a later try, continues this job while it runs, and submits no other."""
        return False

    def stop(self) -> None:
        """Make the cluster end the job, and wait until it has ended.

        :raises CannotTell: the cluster does not answer, or the job does not end.
        """
        self.cancel()
        if not self.ends(STOP_S, cancelled=True):
            raise CannotTell(f"{self} did not end within {STOP_S:g} s of its cancellation")

    def ends(self, patience_s: float, *, cancelled: bool = False) -> bool:
        """Whether the job has ended within *patience_s* seconds. A cluster reports the end some time after the request.

        :param cancelled: whether the cluster was asked to end the job. It may have forgotten the job since then.
        :raises CannotTell: as :meth:`running`.
        """
        deadline, soon_s = time.monotonic() + patience_s, pauses(POLL_S, MOST_POLL_S, 1.5)
        try:
            while self.running():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                time.sleep(min(next(soon_s), left_s))
        except NotFound:
            if not cancelled:
                raise
        return True

    @classmethod
    def names_of(cls, operator: Any) -> Iterable[tuple[str, ...]]:
        """Return what *operator*, of a task in this process, names. A record may then name it here (:mod:`trust`)."""
        for what, attribute in cls.own.items():
            if value := getattr(operator, attribute, None):
                yield (what, *several(value))

    def check(self) -> None:
        """Check that a record may name what it names. It is called before each question.

        :raises CannotTell: it may not.
        """
        if self.conn_types:
            self.extra()

    def extra(self) -> dict[str, Any]:
        """The extra of its connection.

        :raises CannotTell: the connection is not one of ``conn_types``.
        """
        return trust.check_connection(_conn_id(self), self.conn_types)


def checked(check: Check, value: Any, name: str) -> Any:
    """Return *value* of the field *name*, in the form that *check* keeps.

    :raises ValueError: *check* refuses it; TypeError for a value of another type.
    """
    if not isinstance(check, re.Pattern):
        return check(value, name)
    if not check.fullmatch(validate.text(value, name)):
        raise ValueError(f"{name}={value!r:.80}")
    return value


def filled(value: Any, name: str) -> str:
    """Return *value*, one line of text that is not empty."""
    if not validate.one_line(value, name):
        raise ValueError(f"{name} is empty")
    return str(value)


def lines(value: Any, name: str) -> tuple[str, ...]:
    """Return *value*, a list of lines of text, as a tuple."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name}={value!r:.80}")
    return tuple(validate.one_line(each, name) for each in value)


def several(value: Any) -> tuple[Any, ...]:
    """Return the items of a list. A text or another single value is the only item."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _asking(method: Callable[..., Any], within_s: float) -> Callable[..., Any]:
    """Wrap *method* of a job: it answers in time, and each of its errors becomes CannotTell."""

    @wraps(method)
    def asked(self: Job, *args: Any) -> Any:
        if args:  # only a later try asks this, with its operator
            trust.learn(self.names_of(args[0]))

        def ask() -> Any:
            self.check()
            return method(self, *args)

        try:
            return in_time(f"{method.__qualname__} of {self!r}", ask, within_s)
        except CannotTell as error:
            if type(error) is not CannotTell or str(self) in str(error):
                raise
            raise CannotTell(f"{self} cannot be checked: {error}") from error
        except ImportError as error:
            raise CannotTell(f"{self} cannot be checked here: install {self.package or error}") from error
        except Exception as error:
            where = f"through connection {_conn_id(self)!r}"
            if any(_status(each) == NOT_FOUND for each in chain(error)):
                raise NotFound(f"the cluster does not know {self} {where}: {error!r:.500}") from error
            raise CannotTell(f"{self} cannot be checked {where}: {error!r:.500}") from error

    return asked


def knows(operator: Any, context: Any, job_id: int | str) -> bool:
    """Whether *operator*, a ResumableJobMixin of a later try, finds that job in Airflow's store and continues it."""
    store = context.get("task_state_store") if getattr(operator, "durable", False) else None
    if store is None:
        return False
    if store.get(operator.external_id_key) != job_id:
        # The earlier try was killed after the lease recorded the job, and before Airflow did.
        store.set(operator.external_id_key, job_id)
    return True


def _conn_id(job: Job) -> str:
    return str(getattr(job, "conn_id", ""))


def paths(cls: type) -> dict[str, type]:
    """The paths of *cls* and its base classes; *cls* first."""
    return {f"{base.__module__}.{base.__qualname__}": base for base in cls.__mro__}


def lost_answer(error: BaseException) -> bool:
    """Whether *error* came after a request was sent. Then the request may have been executed."""
    found = list(chain(error))
    if any(isinstance(each, ConnectionRefusedError) or "Connect" in type(each).__name__ for each in found):
        return any(isinstance(each, ConnectionResetError) for each in found)
    return any(isinstance(each, TimeoutError) or "Timeout" in type(each).__name__ for each in found)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Return *error* and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _status(error: BaseException) -> Any:
    """The HTTP status in an error of requests, aiohttp or Kubernetes; None for other errors."""
    return getattr(getattr(error, "response", None), "status_code", getattr(error, "status", None))
