"""Clusters that do not answer whether a job has ended: they are given up in time, and take few threads."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self
from unittest.mock import MagicMock, Mock

import pytest

from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work import applications, asking
from airflow_hivelock.work.jobs import table
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.jobs.kubernetes import KubernetesJob, KubernetesPod, SparkApplication

if TYPE_CHECKING:
    from collections.abc import Iterator


POD = KubernetesPod("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1")
K8S_JOB = KubernetesJob("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1")
APPLICATION = SparkApplication(
    *("kubernetes_default", None, None, None, "https://k8s:443", "jobs", "work", "u-1"),
    *("sparkoperator.k8s.io", "v1beta2", "sparkapplications"),
)


class TestInTime:
    @pytest.fixture
    def silent(self) -> Iterator[socket.socket]:
        """A server that accepts, and never answers."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server

    @pytest.fixture
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow_hivelock.work.jobs import kubernetes

        monkeypatch.setattr(kubernetes, "ANSWER_S", 0.2)
        monkeypatch.setattr(kubernetes, "ASK_S", 1.0)

    def test_a_silent_api_server_is_given_up(
        self, silent: socket.socket, short: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The thread that asks it ends, too: a hook of Kubernetes waits for a minute, and then asks again."""
        pytest.importorskip("airflow.providers.cncf.kubernetes")
        at = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": at}}],
            "users": [{"name": "it", "user": {"token": "secret"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        connection = {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(config)}}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
        for job in (POD, K8S_JOB, APPLICATION):
            began = time.monotonic()
            with pytest.raises(CannotTell, match="kubernetes_default"):
                job.running()
            assert time.monotonic() - began < 15, "a hook waits for a minute by itself"
        assert asking_threads() == 0

    def test_any_other_silence_is_given_up_and_takes_one_thread(self) -> None:
        answers = threading.Event()

        def wait() -> None:
            answers.wait(30)

        try:
            for _ in range(5):
                with pytest.raises(CannotTell, match=r"no answer within 0.1 s"):
                    asking.in_time("silence", wait, 0.1)
            assert asking_threads(1) == 1
        finally:
            answers.set()

    def test_many_silences_take_no_more_threads_than_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asking, "MOST_UNANSWERED", 3)
        answers = threading.Event()

        def wait() -> None:
            answers.wait(30)

        try:
            for number in range(3):
                with pytest.raises(CannotTell, match="no answer"):
                    asking.in_time(f"silence {number}", wait, 0.05)
            with pytest.raises(CannotTell, match="3 earlier questions"):
                asking.in_time("another", wait, 0.05)
        finally:
            answers.set()

    def test_of_many_questions_at_once_each_gets_its_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As when a host with a hundred tasks is lost. Only the leases of the first ones were ever checked."""
        monkeypatch.setattr(asking, "MOST_UNANSWERED", 3)
        together = threading.Barrier(12)
        never = threading.Event()

        def ask(number: int) -> bool:
            together.wait(30)
            return asking.in_time(f"job {number}", lambda: not never.wait(0.1), 30)  # as slow as a cluster

        with ThreadPoolExecutor(12) as threads:
            assert all(threads.map(ask, range(12)))

    def test_what_asks_at_the_same_time_gets_the_same_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        got: list[int] = []
        waiting = threading.Semaphore(0)
        put = asking._put

        def counted(*question: Any) -> Any:
            shared = put(*question)
            waiting.release()
            return shared

        def ask() -> int:
            asked.append(1)
            assert all(waiting.acquire(timeout=10) for _ in range(2)), "the answer comes while both wait for it"
            return len(asked)

        def other() -> None:
            got.append(asking.in_time("same", ask, 20))

        monkeypatch.setattr(asking, "_put", counted)

        threads = [threading.Thread(target=other) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert got == [1, 1]

    def test_a_later_question_gets_a_new_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pod has ended by now, and the thread that saw it alive has not quite."""
        slow, run = threading.Event(), asking._Question._run

        def lives_on(self: Any) -> None:
            run(self)
            slow.wait(10)

        monkeypatch.setattr(asking._Question, "_run", lives_on)
        try:
            assert asking.in_time("pod", lambda: "running", 20) == "running"
            assert asking.in_time("pod", lambda: "ended", 20) == "ended"
        finally:
            slow.set()

    @pytest.mark.parametrize(
        "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError(), LookupError()]
    )
    def test_whatever_a_kind_of_jobs_raises_is_no_answer(
        self, error: BaseException, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @dataclass(frozen=True)
        class Raises(Job):
            kind: ClassVar = "raises"

            @classmethod
            def of(cls, operator: Any) -> Self | None:
                return None

            def running(self) -> bool:
                raise error

            def cancel(self) -> None:
                raise error

        for ask in (Raises().running, Raises().cancel, partial(Raises().ends, 0)):
            with pytest.raises(CannotTell, match=type(error).__name__):
                ask()
        monkeypatch.setattr(table, "kind", Mock(side_effect=error))
        with pytest.raises(CannotTell):
            applications.decode('{"kind": "raises"}')


def asking_threads(most: int = 0) -> int:
    """How many still ask, once there are *most* or fewer, or after a while."""
    asking_now = [each for each in threading.enumerate() if each.name == "hivelock-asks"]
    deadline = time.monotonic() + 5
    for each in asking_now[: len(asking_now) - most]:
        each.join(max(0.0, deadline - time.monotonic()))
    return sum(each.is_alive() for each in asking_now)


def test_an_unknown_uid_is_logged_and_the_job_is_recorded_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    pod = SimpleNamespace(metadata=SimpleNamespace(name="work-1", namespace="jobs", uid=None))
    hook = type("KubernetesHook", (), {"__module__": "airflow.providers.cncf.kubernetes.hooks.kubernetes"})()
    hook.conn_id, hook.in_cluster, hook.cluster_context, hook.config_file = "kubernetes_default", None, None, None
    hook.api_client = SimpleNamespace(configuration=SimpleNamespace(ssl_ca_cert=None, host="https://k8s"))
    hook.get_pod = MagicMock(side_effect=ConnectionError("the API server is away"))
    operator: Any = SimpleNamespace(hook=hook, pod=pod, pod_request_obj=pod)
    with caplog.at_level(logging.WARNING):
        job = KubernetesPod.of(operator)
    assert job is not None
    assert (job.name, job.uid) == ("work-1", "")
    assert "The uid of pod work-1 is unknown" in caplog.text
    assert "the API server is away" in caplog.text
