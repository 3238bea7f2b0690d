"""Glue starts a failed run again by itself. The lock stays until the last attempt has ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.jobs import glue
from airflow_hivelock.work.jobs.resumable import ASKING, ResumableJob

NOW = datetime(2013, 1, 15, 12, tzinfo=UTC)
RUN = "jr_1"


class Glue:
    """Glue's client, with the runs of one job, oldest first."""

    def __init__(self, retries: int, *runs: dict[str, Any]) -> None:
        self.retries, self.runs = retries, list(runs)
        self.stopped: list[str] = []

    def get_job_run(self, JobName: str, RunId: str) -> dict[str, Any]:
        (found,) = (run for run in self.runs if run["Id"] == RunId)
        return {"JobRun": found, "ResponseMetadata": {"HTTPHeaders": {"date": f"{NOW:%a, %d %b %Y %H:%M:%S} GMT"}}}

    def get_job(self, JobName: str) -> dict[str, Any]:
        return {"Job": {"Name": JobName, "MaxRetries": self.retries}}

    def get_paginator(self, name: str) -> Any:
        assert name == "get_job_runs"
        return SimpleNamespace(paginate=lambda **_: ({"JobRuns": [run]} for run in reversed(self.runs)))


class GlueJobOperator:
    """The parts of the provider's operator that are called."""

    def __init__(self, client: Glue) -> None:
        self.job_name, self.hook = "load", SimpleNamespace(conn=client)
        self._job_run_id = RUN

    def get_job_status(self, run_id: str, context: Any) -> str:
        return str(self.hook.conn.get_job_run("load", run_id)["JobRun"]["JobRunState"])

    def is_job_active(self, status: str) -> bool:
        return status in ("STARTING", "RUNNING", "STOPPING", "WAITING")

    def on_kill(self) -> None:
        self.hook.conn.stopped.append(self._job_run_id)


def run(number: int, state: str, ago_s: float = 0.0, of: int | None = None) -> dict[str, Any]:
    ended = {"CompletedOn": NOW - timedelta(seconds=ago_s)}
    return {"Id": f"jr_{number}", "JobRunState": state, "PreviousRunId": of and f"jr_{of}"} | ended


def job(client: Glue, monkeypatch: pytest.MonkeyPatch) -> ResumableJob:
    path = "airflow.providers.amazon.aws.operators.glue.GlueJobOperator"
    made = ResumableJob(path, RUN, {"job_name": "load"}, ASKING[path].attribute)
    monkeypatch.setattr(ResumableJob, "_operator", lambda _: GlueJobOperator(client))
    return made


LONG = glue.RETRY_S + 1


@pytest.mark.parametrize(
    ("retries", "runs", "runs_on"),
    [
        (0, [run(1, "FAILED")], False),
        (1, [run(1, "RUNNING")], True),
        (1, [run(1, "SUCCEEDED")], False),
        (1, [run(1, "STOPPED"), run(2, "RUNNING")], False),
        (1, [run(1, "TIMEOUT")], False),
        (1, [run(1, "FAILED", 10)], True),
        (1, [run(1, "FAILED", LONG)], False),
        (1, [run(1, "FAILED", LONG), run(2, "RUNNING", of=1)], True),
        (1, [run(1, "FAILED", LONG), run(2, "SUCCEEDED", of=1)], False),
        (1, [run(1, "FAILED", LONG), run(2, "FAILED", 10, of=1)], False),
        (2, [run(1, "FAILED", LONG), run(2, "FAILED", 10, of=1)], True),
        (2, [run(1, "FAILED", LONG), run(2, "FAILED", LONG, of=1), run(3, "RUNNING", of=2)], True),
        (2, [run(1, "FAILED", LONG), run(2, "FAILED", LONG, of=1), run(3, "RUNNING", of=1)], True),
        (1, [run(1, "FAILED", LONG), run(2, "RUNNING")], False),
    ],
)
def test_a_failed_run_runs_on_while_glue_starts_it_again(
    retries: int, runs: Any, runs_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job(Glue(retries, *runs), monkeypatch).running() is runs_on


def test_the_attempt_that_runs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Glue(1, run(1, "FAILED", LONG), run(2, "RUNNING", of=1))
    job(client, monkeypatch).cancel()
    assert client.stopped == ["jr_2"]


def test_the_next_try_does_not_continue_an_attempt_that_the_operator_does_not_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Glue(1, run(1, "FAILED", LONG), run(2, "RUNNING", of=1))
    operator: Any = GlueJobOperator(client)
    operator.durable, operator.external_id_key = True, "id"
    assert not job(client, monkeypatch).reconnects(operator, {"task_state_store": {"id": RUN}})


def test_a_run_that_is_not_among_the_last_ones_is_not_taken_for_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glue, "MOST_PAGES", 2)
    client = Glue(1, run(1, "FAILED", LONG), run(2, "FAILED"), run(3, "FAILED"), run(4, "FAILED"))
    with pytest.raises(CannotTell, match="not among the last"):
        job(client, monkeypatch).running()
