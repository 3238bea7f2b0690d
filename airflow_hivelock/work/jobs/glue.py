"""The attempts of an AWS Glue job run. Glue starts a failed run again as a new run, up to the job's ``MaxRetries``.

The operator follows only the first run, so it reports a failure while the next attempt runs.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import CannotTell

if TYPE_CHECKING:
    from collections.abc import Iterator

RETRY_S = 300.0
"""The time that Glue has to start the next attempt after a failure, in seconds. No answer of Glue announces it."""

MOST_PAGES = 50
"""The most pages of runs, of 200 each, that are read to find the attempts."""

_RETRIED = ("FAILED", "ERROR")
"""Glue starts no run again that was stopped, or that reached its time-out."""


def last_attempt(operator: Any, run_id: Any) -> tuple[Any, bool]:
    """Return the id of the last attempt of a run, and whether it runs or Glue can still start another one.

    :param operator: a GlueJobOperator.
    :param run_id: the run that the operator has started.
    :raises CannotTell: the run is not among the job's last runs.
    """
    client, name = operator.hook.conn, operator.job_name
    answer = client.get_job_run(JobName=name, RunId=run_id)
    last, attempts = answer["JobRun"], {run_id}
    if last["JobRunState"] in _RETRIED and (most := client.get_job(JobName=name)["Job"].get("MaxRetries", 0)):
        for run in reversed(list(_after(client, name, run_id))):
            if run.get("PreviousRunId") in attempts:
                attempts.add(run["Id"])
                last = run
        if last["JobRunState"] in _RETRIED and len(attempts) <= most:
            now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
            ended = last.get("CompletedOn") or last["LastModifiedOn"]
            return last["Id"], (now - ended).total_seconds() < RETRY_S
    return last["Id"], bool(operator.is_job_active(last["JobRunState"]))


def _after(client: Any, name: str, run_id: str) -> Iterator[dict[str, Any]]:
    """The job's runs that are newer than *run_id*, newest first."""
    pages = client.get_paginator("get_job_runs").paginate(JobName=name, PaginationConfig={"PageSize": 200})
    for page in islice(pages, MOST_PAGES):
        for run in page["JobRuns"]:
            if run["Id"] == run_id:
                return
            yield run
    raise CannotTell(f"run {run_id} is not among the last {200 * MOST_PAGES:,} runs of Glue job {name}")
