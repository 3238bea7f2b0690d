"""Operators that lock, unlock, and run Spark under locks."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

from airflow_hivelock import metrics
from airflow_hivelock.acquiring import AcquiresLocks
from airflow_hivelock.applications import SparkJob, running
from airflow_hivelock.arguments import as_written, check_span, is_rendered
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.model import Lease, LockMode, LockObject
from airflow_hivelock.locks.url import secrets
from airflow_hivelock.mixin import HiveLockMixin
from airflow_hivelock.owners import Owner
from airflow_hivelock.releasing import ReleasesLocks, holds_for_others, leases_of, unfinished, warning_of, work_under
from airflow_hivelock.spark import URL
from airflow_hivelock.stale import Verdict, judge
from airflow_hivelock.triggers import HiveLockTrigger
from airflow_hivelock.waiting import OFF, RETRY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_hivelock.applications import Application
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Holder, Work

_RESUME = "acquired"

WORK_POLL_S = 2.0
"""How often an unlock task asks whether the work under its locks is over."""

SAFE_INSERT = "spark.sql.hive.convertInsertingPartitionedTable"
"""False makes Spark write with Hive's writer. Its own shares a directory among the writers of different partitions,
who then lose each other's files without a word."""

_RELEASED = Verdict(False, "it has been released or taken over meanwhile")


class HiveLockOperator(AcquiresLocks):
    """Acquire locks, all or none, for the tasks that follow; return the lease.

    They stand until a HiveUnlockOperator (as a teardown), ``release_locks`` in a callback, or a force release frees them.

    :param sql: the same as ``lock_sql``, which operators that have a ``sql`` of their own take.
    """

    def __init__(self, *, sql: Any = "", **kwargs: Any) -> None:
        if sql:
            if kwargs.get("lock_sql"):
                raise InvalidRequest(f"{kwargs.get('task_id')}: give sql or lock_sql, not both")
            kwargs["lock_sql"] = sql
        super().__init__(**kwargs)
        if not self.reads and not self.writes and not self.lock_sql:
            raise InvalidRequest(f"{self.task_id} asks for no locks; name at least one object in reads or writes")
        if self.waiting == "trigger":
            self._start_in_triggerer(HiveLockTrigger, _RESUME, super()._lock_kwargs(ends_task=True))

    @classmethod
    def check_arguments(cls, given: Mapping[str, Any]) -> None:
        super().check_arguments({"lock_sql": given.get("sql"), **given})

    def resolve_template_files(self) -> None:
        """Airflow's, when it has parsed the DAG, whose every task is known by now."""
        super().resolve_template_files()
        if self.start_trigger_args is not None and self.start_trigger_args.trigger_kwargs is not None:
            self.start_trigger_args.trigger_kwargs["warning"] = warning_of(self)

    def execute(self, context: Any) -> dict[str, Any]:
        lease = self._acquire(context, resume=_RESUME, ends_task=True)
        if lease and (warning := warning_of(self)):
            self.log.warning("%s", warning)
        return lease.to_json() if lease else OFF

    def acquired(self, context: Any, event: Any) -> dict[str, Any]:
        """Go on once the trigger has acquired the locks."""
        return OFF if event == OFF else self._retake(context, event).to_json()

    def _lock_kwargs(self, ends_task: bool) -> dict[str, Any]:
        return super()._lock_kwargs(ends_task) | {"warning": warning_of(self)}

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except BaseException:
            self._give_back(context)
            raise


class HiveUnlockOperator(ReleasesLocks, BaseOperator):
    """Release what HiveLockOperators acquired; made to be ``.as_teardown(setups=lock)``.

    First makes sure that no task between them and this one still works. What is already free is success; to have no
    HiveLockOperator upstream, and no ``lease``, is an error.

    :param lease: the lease to release, or a list of them; None: those of the HiveLockOperators directly upstream (its
        setups), or of all upstream where none is directly.
    :param work_timeout: how long to wait for that work, and for a lock store that does not answer.
    """

    template_fields: Sequence[str] = ("lease",)

    def __init__(
        self,
        *,
        lease: Any = None,
        work_timeout: timedelta = timedelta(minutes=5),
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_span({"task_id": self.task_id, "work_timeout": work_timeout}, "work_timeout")
        self.lease = lease
        self.work_timeout = work_timeout
        self.hivelock_conn_id = hivelock_conn_id
        self._of_upstream = lease is None

    def resolve_template_files(self) -> None:
        """Airflow's, when it has parsed the DAG, whose every task is known by now."""
        super().resolve_template_files()
        self._check_upstream()

    def execute(self, context: Any) -> list[str]:
        """The ids of the leases that this call has freed.

        :raises InvalidRequest: no lease is given, and no HiveLockOperator is upstream.
        """
        self._check_upstream()
        run_id = context["ti"].run_id
        deadline = time.monotonic() + self.work_timeout.total_seconds()
        freed: list[str] = []
        while True:
            try:
                self._await_work(run_id, deadline)
                for manager, lease in self._leases(run_id):
                    if manager.release(lease):
                        self.log.info("Released lease %s of %s", lease.id, lease.owner)
                        metrics.released(lease.since)
                        freed.append(lease.id)
                return freed
            except StoreUnavailable as error:
                if isinstance(error, AccessDenied) or time.monotonic() > deadline:
                    raise
                self.log.warning("Nothing is released yet; trying again in %g s: %s", RETRY_S, error)
                time.sleep(RETRY_S)

    def _check_upstream(self) -> None:
        if self._of_upstream and not self._locks():
            raise InvalidRequest(
                f"{self.task_id}: no HiveLockOperator is upstream, so there is nothing that it would release; write "
                f"lock >> work >> {self.task_id}.as_teardown(setups=lock), or give it lease=lock.output"
            )

    def _locks(self) -> list[Any]:
        """The lock tasks to unlock."""
        if self.lease is not None:
            owners = [Owner.parse(lease.owner) for lease in self._given()]
            mine = {owner.task_id for owner in owners if owner and owner.dag_id == self.dag_id}
            return [task for task in self.dag.tasks if task.task_id in mine and holds_for_others(task)]
        upstream = list(self.upstream_list), self.get_flat_relatives(upstream=True)
        found = ([task for task in tasks if holds_for_others(task)] for tasks in upstream)
        return next(filter(None, found), [])

    def _given(self) -> list[Lease]:
        given = [self.lease] if isinstance(self.lease, dict) else list(self.lease)
        return [Lease.from_json(lease) for lease in given if lease is not None and lease != OFF]

    def _leases(self, run_id: str) -> Iterator[tuple[LockManager, Lease]]:
        if self.lease is None:
            for lock in self._locks():
                yield from leases_of(lock, run_id)
        else:
            manager = HiveLockHook(self.hivelock_conn_id).manager()
            for given in self._given():
                # As it stands now: the lock task's next try may have taken it over.
                if (lease := manager.find(given.id)) is not None:
                    yield manager, lease

    def _await_work(self, run_id: str, deadline: float) -> None:
        """Wait until no task works under the leases, and what the tasks have left running has ended.

        :raises CannotTell: whether it has; the locks stay.
        """
        work = {task.task_id: task for lock in self._locks() for task in work_under(lock, self)}
        while working := unfinished(self.dag_id, run_id, work.values()) or self._left_running(run_id):
            if time.monotonic() > deadline:
                raise AirflowException(
                    f"not released, since after {self.work_timeout} there is still work under the locks: "
                    f"{', '.join(working)}. Stop it, and clear this task"
                )
            self.log.info("Waiting for %s", ", ".join(working))
            time.sleep(WORK_POLL_S)

    def _left_running(self, run_id: str) -> list[str]:
        return [name for _, lease in self._leases(run_id) for name in running(lease.works)]


class HiveForceUnlockOperator(BaseOperator):
    """Free leases that are not released any more, and say which and why; each goes to the audit trail.

    :param leases: the ids of those to look at; None: all.
    :param objects: look only at leases that lock one of these objects, or something below it; None: all.
    :param stale: free only what is stale: this Airflow's own leases whose run is over or unknown. False frees all that
        ``leases`` or ``objects`` name, whoever's it is.
    :param min_age: leave alone what was granted or renewed less than this ago.
    :param dry_run: only say what would be freed. It and ``min_age`` may be templates in a DAG that renders native objects.
    :param reason: why, for the audit trail.
    """

    template_fields: Sequence[str] = ("leases", "objects", "min_age", "only_report", "reason")

    def __init__(
        self,
        *,
        leases: Sequence[str] | None = None,
        objects: Sequence[str] | None = None,
        stale: bool = True,
        min_age: timedelta | str = timedelta(minutes=5),
        dry_run: bool | str = False,
        reason: str = "stale",
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not stale and leases is None and objects is None:
            raise InvalidRequest(f"{self.task_id}: stale=False frees all that is named; name leases or objects")
        self.leases = leases
        self.objects = objects
        self.stale = stale
        self.min_age = min_age
        self.only_report = dry_run  # not self.dry_run, which is Airflow's method
        self.reason = reason
        self.hivelock_conn_id = hivelock_conn_id
        self._check_arguments()

    def _check_arguments(self) -> None:
        """What no rendering mends is refused when the DAG is parsed."""
        for name, given in (("leases", self.leases), ("objects", self.objects)):
            if given is not None and not is_rendered(given) and not isinstance(given, list | tuple):
                raise InvalidRequest(f"{self.task_id}: {name}={given!r} must be a list of names, as in [{given!r}]")
        for target in as_written(self.objects or ()):
            LockObject.parse(target)
        if not is_rendered(self.min_age):
            check_span({"task_id": self.task_id, "min_age": self.min_age}, "min_age")
        if not is_rendered(self.only_report) and not isinstance(self.only_report, bool):
            raise InvalidRequest(f"{self.task_id}: dry_run={self.only_report!r}; use True or False")
        if not self.reason.strip():
            raise InvalidRequest(f"{self.task_id}: say why (reason); the audit trail keeps it")

    def execute(self, context: Any) -> dict[str, list[dict[str, str]]]:
        """What was freed, or would be (``dry_run``), and what was left, each as lease, owner and reason."""
        for name, value, kind in (("dry_run", self.only_report, bool), ("min_age", self.min_age, timedelta)):
            if not isinstance(value, kind):
                raise InvalidRequest(
                    f"{self.task_id}: {name} is {value!r}, not a {kind.__name__}; a template needs a DAG with "
                    "render_template_as_native_obj=True"
                )
        hook = HiveLockHook(self.hivelock_conn_id)
        manager = hook.manager()
        manager.sweep()
        report: dict[str, list[dict[str, str]]] = {"freed": [], "left": []}
        user = _by_whom(hook, context)
        for holder in self._chosen(manager):
            lease = manager.find(str(holder.lease_id))
            verdict = self._judge(hook, manager, holder, lease)
            if verdict.stale and not self.only_report:
                verdict = self._free(manager, holder, lease if self.stale else None, verdict, user)
            what = "freed" if verdict.stale else "left"
            report[what].append({"lease": str(holder.lease_id), "owner": holder.owner, "reason": verdict.reason})
            said = "would free" if verdict.stale and self.only_report else what
            self.log.info("%s lease %s of %s: %s", said, holder.lease_id, holder.owner, verdict.reason)
        return report

    def _chosen(self, manager: LockManager) -> list[Holder]:
        """One holder for each lease to look at."""
        targets = [None] if self.objects is None else [LockObject.parse(name) for name in self.objects]
        holders = (holder for target in targets for holder in manager.show(target) if holder.lease_id is not None)
        chosen = {holder.lease_id: holder for holder in holders}
        wanted = chosen.keys() if self.leases is None else self.leases
        return [chosen[lease_id] for lease_id in wanted if lease_id in chosen]

    def _judge(self, hook: HiveLockHook, manager: LockManager, holder: Holder, lease: Lease | None) -> Verdict:
        if not self.stale:
            return Verdict(True, self.reason)
        if lease is None:
            return _RELEASED
        assert isinstance(self.min_age, timedelta)
        return judge(holder, lease, hook.installation, self.min_age, manager.now())

    def _free(self, manager: LockManager, holder: Holder, seen: Lease | None, verdict: Verdict, user: str) -> Verdict:
        """*verdict*, or that somebody else was quicker."""
        reason = f"{self.reason}: {verdict.reason}"
        if not manager.force_release(str(holder.lease_id), reason=reason, user=user, seen=seen):
            return _RELEASED
        metrics.force_released()
        return verdict


def _by_whom(hook: HiveLockHook, context: Any) -> str:
    """Who the audit trail says it was: the task, and whoever has triggered its run."""
    task = str(Owner.of(hook.installation, context["ti"]))
    person = getattr(context.get("dag_run"), "triggering_user_name", None)
    return f"{person} by {task}" if person else task


class HiveLockedSparkSubmitOperator(HiveLockMixin, SparkSubmitOperator):
    """SparkSubmitOperator under locks; all that SparkSubmitOperator takes, and all that HiveLockMixin takes.

    The job finds its lease in ``spark.hivelock.lease`` and ``spark.hivelock.token``. Where it writes single partitions,
    ``spark.sql.hive.convertInsertingPartitionedTable`` is false unless ``conf`` says otherwise.
    """

    def use_lease(self, lease: Lease, work: Work) -> None:
        conf = {
            "spark.hivelock.lease": lease.id,
            "spark.hivelock.work": work.name,
            "spark.hivelock.token": str(work.token),
        }
        if any(lock.mode is LockMode.EXCLUSIVE and lock.object.partition for lock in lease.locks):
            conf[SAFE_INSERT] = "false"
        self.conf = {**conf, **(self.conf or {})}

    def reconnects(self, context: Any, earlier: Application) -> SparkJob | None:
        """What an earlier try submitted, if the cluster still runs it: SparkSubmitOperator goes on with that."""
        store = context.get("task_state_store") if self.durable else None
        if store is None:
            return None
        if isinstance(earlier, SparkJob) and store.get(self.external_id_key) != earlier.job_id:
            store.set(self.external_id_key, earlier.job_id)  # it was killed between the lease's record and Airflow's
        job_id = store.get(self.external_id_key)
        job = self._job(job_id) if job_id else None
        return job if job and job.running() else None

    def _get_hook(self) -> Any:
        hook: Any = super()._get_hook()
        if hook._connection["deploy_mode"] == "cluster":
            if not (
                hook._should_track_driver_status
                or hook._should_track_driver_via_k8s_api()
                or hook._should_track_yarn_application_via_rm_api()
            ):
                raise InvalidRequest(
                    f"{self.task_id}: in cluster mode the job outlives spark-submit, and nobody could tell when it ends; "
                    "set yarn_track_via_rm_api=True or track_driver_via_k8s_api=True"
                )
            self.submits()
            hook._conf = _driver_environment(hook) | hook._conf
            hook._process_spark_submit_log = partial(self._record_from, hook, hook._process_spark_submit_log)
        return hook

    def _record_from(self, hook: Any, process: Callable[[Iterator[str]], None], lines: Iterator[str]) -> None:
        """Record the job as soon as spark-submit has said its id: it then goes on for seconds, and the job runs."""
        for line in lines:
            process(iter((line,)))
            job_id = hook._driver_id or hook._yarn_application_id
            if hook._kubernetes_driver_pod:
                job_id = f"{hook._connection['namespace']}:{hook._kubernetes_driver_pod}"
            if job_id:
                self.record_application(self._job(job_id))

    def _job(self, job_id: str) -> SparkJob:
        return SparkJob(self._conn_id, job_id, self._deploy_mode)


def _driver_environment(hook: Any) -> dict[str, str]:
    """The settings that tell a driver in a cluster, which inherits no environment, where its lease is kept.

    None where that would show a password, as Spark's own page shows all settings; nor on a standalone cluster.
    """
    prefix = "spark.yarn.appMasterEnv" if hook._is_yarn else "spark.kubernetes.driverEnv" if hook._is_kubernetes else ""
    url = os.environ.get(URL, "")
    return {f"{prefix}.{URL}": url} if prefix and url and not secrets(url) else {}
