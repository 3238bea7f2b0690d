"""Records on the lease the jobs that an operator submits to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.operators import connect_jobs, hive_jobs
from airflow_hivelock.spark import connect_errors
from airflow_hivelock.work.jobs import table
from airflow_hivelock.work.jobs.job import chain, lost_answer
from airflow_hivelock.work.jobs.resumable import ResumableJob
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.work.applications import Application
    from airflow_hivelock.work.jobs.job import Job
    from airflow_hivelock.work.lease_holder import LeaseHolder


class SubmitsJobs(BaseOperator):
    """The part of HiveLockMixin that records an operator's jobs on its lease."""

    _held: LeaseHolder | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. If it is the id of the submitted job, record the job."""
        super().__setattr__(name, value)
        if vars(self).get("_held") is not None and name == self._job_attribute:
            self._record_job(lambda: table.job_of(self))

    def get_ready(self) -> None:
        """Import the modules that the start of the work needs, before the task acquires locks. So no lock is held during
        the import."""
        table.kind_of(type(self))
        hive_jobs.get_ready(self)

    def submit_job(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator's method, if it is a ResumableJobMixin, and record the submitted job.

        :raises CannotTell: an earlier try's job, which this try should continue, still runs.
        """
        held = self._held
        if held is not None and held.job is not None:
            if held.job.running():
                raise CannotTell(
                    f"{self.task_id} submits no second job, because {held.job} still runs. Wait for its end, or end it in its cluster"
                )
            held.record(Processes(submits=True))
        before = dict(vars(self))
        job_id = super().submit_job(*args, **kwargs)  # type: ignore[misc]
        if held is not None and held.job is None and job_id is not None and self._job_attribute == "":
            context = args[0] if args else kwargs.get("context")
            self._record_job(lambda: ResumableJob.submitted(self, job_id, before, context))
        return job_id

    def record_submission(self) -> None:
        """Record that this process submits work, for example to a cluster. Its end then does not show the end of that
        work."""
        if self._held is not None:
            self._held.record_submission()

    def record_application(self, application: Application) -> None:
        """Record that the work is now *application*, for example the job on a cluster."""
        if self._held is not None:
            self._held.record(application)

    @property
    def _job_attribute(self) -> str | None:
        found = table.kind_of(type(self))
        return found[1] if found else None

    def _record_job(self, make: Callable[[], Job | None]) -> None:
        assert self._held is not None
        try:
            job = make()
        except (ValueError, TypeError) as error:
            self.log.warning(
                "The submitted job cannot be recorded (%s). If this process is killed, the lease is kept until a user frees it",
                error,
            )
        else:
            if job is not None:
                self._held.record(job)

    @property
    def _ends_with_process(self) -> bool:
        """Whether the operator's work certainly ends with the task's process and its child processes."""
        return table.ends_with_process(type(self)) and not connect_jobs.may_use_server(self)

    @property
    def _is_known(self) -> bool:
        """Whether the operator is known to submit jobs, or to send statements to a SQL server."""
        return table.kind_of(type(self)) is not None or hive_jobs.sends_statements(self)

    def _may_have_submitted(self, error: Exception | None, *, stopped: bool = False) -> bool:
        """Whether a job with an unknown id can run, because ``execute`` was killed or ended with *error*.

        :param stopped: whether the operator's ``on_kill()`` has stopped its work.
        """
        held = self._held
        if held is None or not held.may_submit:
            return False
        if hive_jobs.sends_statements(self) or connect_jobs.is_function(self):
            return self._may_go_on(error)
        if not self._is_known:
            if error is None and not stopped:
                self.log.warning(
                    "The lease is kept, because the task was killed, and its operator has no on_kill() to end its work. Check "
                    "whether the work still runs outside the task. If not, free the lease"
                )
            return error is None and not stopped
        if error is not None and not lost_answer(error):
            return False
        self.log.warning(
            "The lease is kept, because the task may have submitted a job without getting its id: %s. Look in the cluster. If no "
            "job runs there, free the lease",
            error or "killed meanwhile",
        )
        return True

    def _may_go_on(self, error: Exception | None) -> bool:
        """Whether a server can still run a statement, because ``execute`` got no answer."""
        if error is not None and not (
            hive_jobs.unanswered(error) or any(connect_errors.unanswered(each) for each in chain(error))
        ):
            return False
        self.log.warning(
            "The lease is kept, because the server may still run the statement: %s. Look there. When it has ended, free the lease",
            error or "killed meanwhile",
        )
        return True

    def _record_tried_job(self) -> None:
        """Record a job whose id the operator chose itself, even if its submission got no answer."""
        held = self._held
        if held is None or not held.may_submit or (job := table.job_of(self)) is None:
            return
        try:
            tried = job.running()
        except CannotTell as error:
            self.log.warning("The task may have submitted %s: %s", job, error)
            tried = True
        if tried:
            held.record(job)
