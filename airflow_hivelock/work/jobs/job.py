"""The base class of all kinds of jobs. Every host that sees a lease can ask about its jobs, and end them."""

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
    """The check of a field: a pattern for the whole text, or a function that returns the value to store."""

STOP_S = 120.0
"""The longest wait for a job's end after its cancellation, in seconds."""

POLL_S = 0.5
MOST_POLL_S = 5.0
"""The shortest and the longest pause between two questions to a cluster, in seconds. The pause grows."""


CANCEL_S = 90.0
"""The time limit of a cancellation, in seconds. ``spark-submit --kill`` starts a JVM for it."""

_ASKS = {"running": ASK_S, "reconnects": ASK_S, "cancel": CANCEL_S}
"""The methods that ask a cluster, each with its time limit in seconds."""

NOT_FOUND = 404


class NotFound(CannotTell):
    """The cluster does not know the job. It has forgotten the job, or the job belongs to another cluster."""


class Job(ABC):
    """A job on a cluster. Each kind is a frozen dataclass whose fields another process can read from the store.

    Each field is checked, because it comes from a store. No field is secret. A provider is imported only to ask.

    ``running``, ``cancel`` and ``reconnects`` of each kind run in a separate thread with a time limit. All of their errors
    become CannotTell.
    """

    kind: ClassVar[str]
    """The kind's name in the entry point group ``airflow_hivelock.jobs``, and on leases."""

    operators: ClassVar[Mapping[str, str]] = {}
    """By the path of an operator's class, the attribute that the operator sets after it has submitted the job."""

    package: ClassVar[str] = ""
    """The distribution with the provider that asks the cluster."""

    conn_types: ClassVar[Collection[str]] = ()
    """The types of connections that its hook accepts. A record that names a connection of another type is refused.
    Empty if the kind checks the connection itself.
    """

    checks: ClassVar[Mapping[str, Check]] = {}
    """By field, the check of its value. Invalid values raise ValueError or TypeError."""

    own: ClassVar[Mapping[str, str]] = {}
    """By kind of name (:mod:`trust`), the attribute of an operator that has the name."""

    shown: ClassVar[str] = ""
    """The text for users. ``{name}`` is the field of that name. If empty, users see the dataclass's repr."""

    over_with_success: ClassVar[bool] = False
    """Whether a return of the operator's ``execute`` means that the job has ended."""

    forgets: ClassVar[bool] = True
    """Whether the cluster can forget the job. An HTTP status of 404 then raises NotFound, and else only CannotTell."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap the methods of each kind that ask a cluster, also in kinds of other packages."""
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
        """Return the job that *operator* has submitted; None before the submission.

        A submission without an answer counts if the job's name is known. This is also called when ``execute()`` ends.
        """

    @classmethod
    def watch(cls, operator: Any, record: Callable[[Job], None]) -> None:
        """Make *operator* call *record* with each job that it submits, if it sets no attribute, or sets it late.

        This is called before ``execute()``.
        """
        return  # most operators need nothing

    @abstractmethod
    def running(self) -> bool:
        """Whether the cluster reports that the job has not ended.

        :raises CannotTell: the cluster does not answer, or does not know the job.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Ask the cluster to end the job.

        :raises CannotTell: the cluster did not accept the request.
        """

    def reconnects(self, operator: Any, context: Any) -> bool:
        """Whether ``execute()`` of *operator*, a later try, continues this running job instead of submitting another."""
        return False

    def stop(self) -> None:
        """Cancel the job, and wait for its end.

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
        """Return the names that *operator*, in this process, uses. A record may then use them too (:mod:`trust`)."""
        for what, attribute in cls.own.items():
            if value := getattr(operator, attribute, None):
                yield (what, *several(value))

    def check(self) -> None:
        """Check that a record may contain the names in this job. This is called before each question.

        :raises CannotTell: it may not.
        """
        if self.conn_types:
            self.extra()

    def extra(self) -> dict[str, Any]:
        """The extra of the job's connection.

        :raises CannotTell: the connection is not one of ``conn_types``.
        """
        return trust.check_connection(_conn_id(self), self.conn_types)


def checked(check: Check, value: Any, name: str) -> Any:
    """Return the checked *value* of the field *name*.

    :raises ValueError: *check* refuses the value. TypeError for a value of another type.
    """
    if not isinstance(check, re.Pattern):
        return check(value, name)
    if not check.fullmatch(validate.text(value, name)):
        raise ValueError(f"{name}={value!r:.80}")
    return value


def filled(value: Any, name: str) -> str:
    """Return *value* if it is one line of text and not empty."""
    if not validate.one_line(value, name):
        raise ValueError(f"{name} is empty")
    return str(value)


def lines(value: Any, name: str) -> tuple[str, ...]:
    """Return *value* as a tuple if it is a list of lines of text."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name}={value!r:.80}")
    return tuple(validate.one_line(each, name) for each in value)


def several(value: Any) -> tuple[Any, ...]:
    """Return the items of a list as a tuple. A text or another single value becomes the only item."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _asking(method: Callable[..., Any], within_s: float) -> Callable[..., Any]:
    """Wrap *method* of a job with a time limit. All of its errors become CannotTell."""

    @wraps(method)
    def asked(self: Job, *args: Any) -> Any:
        if args:  # reconnects has the operator of a later try
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
            if self.forgets and any(_status(each) == NOT_FOUND for each in chain(error)):
                raise NotFound(f"the cluster does not know {self} {where}: {error!r:.500}") from error
            raise CannotTell(f"{self} cannot be checked {where}: {error!r:.500}") from error

    return asked


def knows(operator: Any, context: Any, job_id: int | str) -> bool:
    """Whether *operator*, a later try's ResumableJobMixin, continues that job. Complete Airflow's store if needed."""
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
    """*cls* and its base classes by their paths, *cls* first."""
    return {f"{base.__module__}.{base.__qualname__}": base for base in cls.__mro__}


def lost_answer(error: BaseException) -> bool:
    """Whether *error* came after a request was sent, so that the request can have been executed."""
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
