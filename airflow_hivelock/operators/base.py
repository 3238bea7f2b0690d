"""The base class of the operators with ``reads`` and ``writes``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import BaseOperator
from airflow.triggers.base import StartTriggerArgs

from airflow_hivelock import compat
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.links import Linked
from airflow_hivelock.locks import formats
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.operators.arguments import CheckedPartial, check_names, check_not_nothing, is_reference
from airflow_hivelock.spec import RENDERED, LeaseTerms, LockSpec, Owner
from airflow_hivelock.templates import StrictNames, is_file, renders_in_triggerer, sql_source
from airflow_hivelock.triggers.arguments import written
from airflow_hivelock.waiting import attempts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from airflow_hivelock.locks.model import LockRequest


class NamesLocks(Linked, StrictNames, BaseOperator):
    """The base class of the operators that have ``reads`` and ``writes``.

    :param reads: the data to read, such as ``dw.flights/dt={{ ds }}``: a database, a table, a partition or a range of
        partitions.
    :param writes: the data to write.
    :param lock_sql: the HiveQL or Spark SQL that the task runs, or a file with it (``.sql``, ``.hql``). The data that
        the SQL reads and writes is locked too. True means the operator's own ``sql`` or ``hql``.
    :param lock_database: the database of names without one in that SQL. The default is the operator's own ``schema``,
        or ``default``.
    :param unpartitioned: tables without partitions. Needed if there is no metastore to ask.
    :param partition_columns: by table, the partition columns of other tables, outermost first. Needed if there is no
        metastore to ask. The form is that of ``PARTITIONED BY``, with or without types: ``{"dw.hourly": ["dt date", "hr
        string"]}``.
    :param support_concurrency: False takes no locks, so the data is at risk. None means the connection's setting.
    :param hivelock_conn_id: the connection to the lock store.
    """

    template_fields: Sequence[str] = RENDERED

    _resume_method: ClassVar[str]
    """The method that resumes the task after a wait in the triggerer."""

    one_connection: ClassVar[bool] = False
    """Whether ``hivelock_conn_id`` cannot be mapped."""

    check_whole = staticmethod(check_not_nothing)
    """Refuses the whole arguments of a task, mapped or not, if they name no lock."""

    # Set only on instances, because Airflow applies a class's value to mapped tasks without their mapped arguments.
    start_trigger_args: StartTriggerArgs | None = None
    start_from_trigger: bool = False

    def __init__(
        self,
        *,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        lock_sql: str | bool = "",
        lock_database: str = "",
        unpartitioned: Sequence[str] = (),
        partition_columns: Mapping[str, Sequence[str]] | None = None,
        support_concurrency: bool | None = None,
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.reads = reads
        self.writes = writes
        self.lock_sql = (self.own_sql() or self._refuse_sql()) if lock_sql is True else lock_sql or ""
        self.lock_database = lock_database or getattr(self, "schema", None) or "default"
        self.unpartitioned = unpartitioned
        self.partition_columns = partition_columns
        self.support_concurrency = support_concurrency
        self.hivelock_conn_id = hivelock_conn_id
        check_names(vars(self) | {"dag": self.dag if self.has_dag() else None})  # type: ignore[no-untyped-call]

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse invalid arguments when the DAG is parsed. Arguments of a mapped task are checked one by one.

        :raises InvalidRequest: with the task and the argument.
        """
        check_names(arguments)

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Call Airflow's method after a check of the arguments."""
        cls.check_arguments(kwargs)
        made = super().partial(**kwargs)
        made.__class__ = CheckedPartial
        return made

    def resolve_template_files(self) -> None:
        """Send a file's text to the triggerer, which does not have the file, and attributes that the DAG has changed.

        Airflow calls this after it has parsed the DAG.
        """
        if is_file(self.lock_sql):
            with suppress(InvalidRequest):  # the file can exist where the task runs
                self.lock_sql = sql_source(self.get_template_env(), self.lock_sql)
        super().resolve_template_files()
        if self.start_trigger_args is not None and (sent := self.start_trigger_args.trigger_kwargs) is not None:
            spec = self._spec_kwargs()
            for name in spec.keys() & sent.keys():
                del sent[name]
            sent |= written(self._trigger, spec)
            if self._needs_a_worker_to_render():
                self.start_from_trigger, self.start_trigger_args = False, None

    def own_sql(self) -> str:
        """The operator's own ``sql`` or ``hql``, with its statements separated by ``;``. Empty if it has no text."""
        own = getattr(self, "sql", None) or getattr(self, "hql", None)
        given = own if isinstance(own, list | tuple) else [own]
        texts = [text for text in given if isinstance(text, str) and (len(given) == 1 or not is_file(text))]
        return "\n;\n".join(texts) if len(texts) == len(given) else ""

    def _refuse_sql(self) -> NoReturn:
        raise InvalidRequest(
            f"{self.task_id}: lock_sql=True, but the operator has no sql or hql as a text or one file. Pass it in lock_sql"
        )

    def _start_in_triggerer(self, trigger: type, trigger_kwargs: dict[str, Any]) -> None:
        """Make the task start in the triggerer if that can render the fields. Otherwise it starts on a worker."""
        if self._needs_a_worker_to_render():
            return
        self.start_from_trigger, self._trigger = True, trigger
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{trigger.__module__}.{trigger.__name__}",
            next_method=self._resume_method,
            trigger_kwargs=written(trigger, self._spec_kwargs() | trigger_kwargs) | formats.WRITES.short(),
        )

    def _spec_kwargs(self) -> dict[str, Any]:
        """The trigger's arguments for the locks and the connection."""
        return {"hivelock_conn_id": self.hivelock_conn_id, **asdict(LockSpec.of(self))}

    def _defer_to(self, trigger: Any, trigger_kwargs: dict[str, Any], hook: HiveLockHook, context: Any) -> NoReturn:
        """Defer to a trigger that continues the request of this worker."""
        owner, attempt = str(self._lock_owner(hook, context)), self._attempt(context)
        made = trigger(**self._spec_kwargs(), **trigger_kwargs, owner=owner, attempt=attempt)
        self.defer(trigger=made, method_name=self._resume_method)

    def _request(self, hook: HiveLockHook, context: Any, *terms: LeaseTerms, **options: Any) -> LockRequest:
        owner, attempt = self._lock_owner(hook, context), self._attempt(context)
        return LockSpec.of(self).request(hook, owner, attempt, *terms, **options)

    def _lock_owner(self, hook: HiveLockHook, context: Any) -> Owner:
        return Owner.of(hook.installation, context["ti"])

    def _attempt(self, context: Any) -> int:
        return attempts.of(context["ti"], context["ti"].try_number)

    def _needs_a_worker_to_render(self) -> bool:
        """Whether only a worker can render the templates: with XComs, the DAG's settings of Jinja, or native types."""
        if not compat.TRIGGERS_RENDER:
            return True
        lists = (self.reads, self.writes)
        if any(isinstance(names, str) or is_reference(names) for names in lists):
            return True
        given = (*self.reads, *self.writes, self.lock_sql, self.lock_database)
        if any(map(is_reference, given)):
            return True
        dag = self.dag if self.has_dag() else None  # type: ignore[no-untyped-call]
        # The serialized DAG has none of these.
        if dag and (dag.user_defined_macros or dag.user_defined_filters or dag.jinja_environment_kwargs):
            return True
        jinja_env = self.get_template_env()
        return not all(renders_in_triggerer(jinja_env, each) for each in given if isinstance(each, str))
