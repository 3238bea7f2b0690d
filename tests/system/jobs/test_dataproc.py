"""Dataproc's jobs: the real operators, against a stub of the service."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import ANSWER_S
from airflow_hivelock.work.jobs import dataproc
from tests.system.jobs.told import Over, context, told_by


class TestDataproc:
    @pytest.fixture(autouse=True)
    def connection(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", "google-cloud-platform://?project=elsewhere")

    @pytest.fixture
    def api(self) -> Any:
        return pytest.importorskip("google.cloud.dataproc_v1")

    @pytest.fixture
    def hook(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Google's side: whatever hook asks."""
        hooks = pytest.importorskip("airflow.providers.google.cloud.hooks.dataproc")
        google, service = hooks.DataprocHook, MagicMock()
        for method in ("submit_job", "get_job", "cancel_job", "create_batch", "get_batch", "get_operations_client"):
            monkeypatch.setattr(google, method, getattr(service, method))
        monkeypatch.setattr(google, "project_id", "here")
        return service

    def test_the_states_are_those_of_the_service(self, api: Any) -> None:
        assert {state.name for state in api.JobStatus.State} - dataproc._JOB_OVER == {
            *("STATE_UNSPECIFIED", "PENDING", "SETUP_DONE", "RUNNING", "CANCEL_PENDING", "CANCEL_STARTED"),
            "ATTEMPT_FAILURE",
        }
        assert {state.name for state in api.Batch.State} - dataproc._BATCH_OVER == {
            *("STATE_UNSPECIFIED", "PENDING", "RUNNING", "CANCELLING"),
        }

    @pytest.mark.parametrize("how", [{}, {"deferrable": True}, {"asynchronous": True}])
    def test_a_job(self, api: Any, hook: Any, how: dict[str, Any]) -> None:
        operator, recorded = told_by(dataproc.DataprocJob, job={}, region="europe-west3", **how)
        hook.submit_job.return_value = api.Job(reference={"job_id": "job-1"})
        hook.get_job.side_effect = Over()
        operator.hook = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("time.sleep", lambda _: None)
            if "asynchronous" in how:
                operator.execute(context())
            else:
                with pytest.raises(Over):
                    operator.execute(context())
        (job,) = recorded
        assert job == dataproc.DataprocJob("google_cloud_default", (), "here", "europe-west3", "job-1")
        hook.get_job.side_effect = None
        for state in api.JobStatus.State:
            hook.get_job.return_value = api.Job(status={"state": state})
            assert job.running() is (state.name not in ("DONE", "ERROR", "CANCELLED"))
        job.cancel()
        (asked,) = hook.cancel_job.call_args_list
        assert asked.kwargs.items() >= {"job_id": "job-1", "project_id": "here", "region": "europe-west3"}.items()

    @pytest.mark.parametrize("how", [{}, {"deferrable": True}, {"asynchronous": True}])
    def test_a_batch(self, api: Any, hook: Any, how: dict[str, Any]) -> None:
        operator, recorded = told_by(dataproc.DataprocBatch, batch={}, region="europe-west3", project_id="p", **how)
        made = api.BatchOperationMetadata(batch="projects/p/locations/europe-west3/batches/b-1", batch_uuid="u-1")
        hook.create_batch.return_value = SimpleNamespace(metadata=made)
        hook.get_batch.side_effect = Over()
        with pytest.raises((Over, TaskDeferred)) as ended:
            operator.execute(context())
        assert type(ended.value).__name__ == ("TaskDeferred" if "deferrable" in how else "Over")
        (job,) = recorded
        assert job == dataproc.DataprocBatch("google_cloud_default", (), "p", "europe-west3", "b-1", "u-1")
        hook.get_batch.side_effect = None
        for state in api.Batch.State:
            hook.get_batch.return_value = api.Batch(state=state, uuid="u-1", operation="o-1")
            if state.name == "STATE_UNSPECIFIED":
                with pytest.raises(CannotTell):
                    job.running()
            else:
                assert job.running() is (state.name in ("PENDING", "RUNNING", "CANCELLING"))
        job.cancel()
        hook.get_operations_client.return_value.cancel_operation.assert_called_once_with(
            name="o-1", retry=None, timeout=ANSWER_S
        )
        hook.get_batch.return_value = api.Batch(state="RUNNING", uuid="u-2")
        assert not job.running(), "a later one of its name"

    def test_a_batch_that_was_there_before(self, api: Any, hook: Any) -> None:
        errors = pytest.importorskip("google.api_core.exceptions")
        operator, recorded = told_by(dataproc.DataprocBatch, batch={}, region="europe-west3", batch_id="b-1")
        hook.create_batch.side_effect = errors.AlreadyExists("b-1")
        hook.get_batch.side_effect = Over()
        with pytest.raises(Over):
            operator.execute(context())
        assert recorded == []
        assert dataproc.DataprocBatch.of(operator) == dataproc.DataprocBatch(
            "google_cloud_default", (), "here", "europe-west3", "b-1"
        )

    def test_what_is_not_found_has_ended_if_it_is_that_what_is_not_found(self, hook: Any) -> None:
        errors = pytest.importorskip("google.api_core.exceptions")
        job = dataproc.DataprocJob("google_cloud_default", (), "here", "europe-west3", "job-1")
        hook.get_job.side_effect = errors.NotFound("Not found: Job projects/here/regions/europe-west3/jobs/job-1")
        assert not job.running()
        for error in (errors.NotFound("Not found: Project here"), errors.PermissionDenied("job-1")):
            hook.get_job.side_effect = error
            with pytest.raises(CannotTell, match="job-1"):
                job.running()
