"""Work on a host that does not answer any more: a pod's cluster reports its end, or a user declares the host gone."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import uuid
from dataclasses import asdict, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_hivelock.locks.errors import CannotTell, InvalidRequest
from airflow_hivelock.locks.model import Lease, Work
from airflow_hivelock.spark import driver_work
from airflow_hivelock.ui.works import ask
from airflow_hivelock.work import applications, hosts, pod
from airflow_hivelock.work.applications import encode
from airflow_hivelock.work.pod import Pod
from airflow_hivelock.work.processes import Processes, _started
from tests.airflow.test_keeper_frees import acquire, airflow, keep, works
from tests.support.servers.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_hivelock.locks import LockManager
    from tests.airflow.test_keeper_frees import Airflow

assert airflow  # a fixture

UID, OTHER = (str(uuid.UUID(int=number)) for number in (1, 2))


def elsewhere(**said: Any) -> Processes:
    return Processes(host="worker-7", **said)


def test_a_command_to_copy_runs_no_part_of_a_hosts_name() -> None:
    """Any client of the lock store can write a record."""
    record = encode(Processes(host="worker-7; curl odd | sh"))
    (answer,) = ask(Lease("id", 1, 1, 1, "ann", (), 60.0, datetime.now(UTC), (Work("load", record, 1),))).values()
    assert answer.next.endswith("host-gone 'worker-7; curl odd | sh'")
    with pytest.raises(CannotTell, match=r"host-gone 'worker-7; curl odd \| sh'$"):
        applications.decode(record).running()


class TestDeclared:
    def test_what_ran_on_it_has_ended_and_what_starts_there_later_has_not(
        self, manager: LockManager, airflow: Airflow
    ) -> None:
        works(manager, elsewhere())
        airflow.knows("run", "failed", load="failed")
        assert "can only be checked there" in next(iter(keep(2).values()))
        (declared,) = hosts.declare_gone(
            manager, hosts.on_host("worker-7", manager.leases()), reason="burnt down", user="ann"
        )
        assert declared.processes.pid == os.getpid()
        assert not keep()
        assert not manager.leases(), "the lock of a host that is gone stays"
        works(manager, elsewhere())
        assert "can only be checked there" in next(iter(keep(2).values()))
        assert manager.leases(), "the word was about what ran before it"

    def test_work_with_an_odd_name_keeps_no_other_from_being_declared(self, manager: LockManager) -> None:
        for name, what in (("a", "odd\x1b[2J"), ("b", "load")):
            lease = manager.acquire(owner=name, writes=[f"dw.{name}"])
            manager.start_work(lease, what, encode(elsewhere()))
        found = hosts.on_host("worker-7", manager.leases())
        assert len(hosts.declare_gone(manager, found, reason="burnt down", user="ann")) == 2

    def test_it_is_about_nothing_that_has_begun_since_somebody_looked(self, manager: LockManager) -> None:
        lease = works(manager, elsewhere())
        looked = hosts.on_host("worker-7", manager.leases())
        manager.start_work(lease, "load", applications.encode(elsewhere()))
        assert hosts.declare_gone(manager, looked, reason="burnt down", user="ann") == []
        assert not manager.audit()
        with pytest.raises(CannotTell, match="on worker-7"):
            applications.running(manager.leases()[0].works)

    def test_the_audit_trail_and_the_record_say_who_and_why(self, manager: LockManager) -> None:
        works(manager, elsewhere(submits=True))
        found = hosts.on_host("worker-7", manager.leases())
        hosts.declare_gone(manager, found, reason="burnt\ndown", user="ann")
        (entry,) = manager.audit()
        assert (entry.user, entry.reason) == ("ann", "host worker-7 is gone, and with it work load: burnt down")
        (each,) = hosts.recorded(manager.leases())
        assert "declared gone by ann at " in str(each.processes)
        assert each.processes.gone.endswith("Z: burnt down")
        assert replace(each.processes, gone="") == found[0].processes
        with pytest.raises(CannotTell, match="may have submitted work to a cluster"):
            applications.running([each.work])
        with pytest.raises(InvalidRequest, match=r"'worker-7' is already declared gone, by ann at .*: burnt down"):
            hosts.on_host("worker-7", manager.leases())

    def test_a_reason_of_any_length_that_the_trail_keeps_is_kept(self, manager: LockManager) -> None:
        works(manager, elsewhere())
        found = hosts.on_host("worker-7", manager.leases())
        with pytest.raises(InvalidRequest, match="needs a reason"):
            hosts.declare_gone(manager, found, reason=" ", user="ann")
        assert hosts.declare_gone(manager, found, reason="x" * 2_000, user="ann")
        assert len(hosts.recorded(manager.leases())[0].processes.gone) == 300

    def test_nobody_declares_the_host_that_they_are_on(self, manager: LockManager) -> None:
        works(manager, Processes())
        with pytest.raises(InvalidRequest, match="is this host, so it is not gone"):
            hosts.on_host(socket.gethostname(), manager.leases())

    def test_a_host_that_is_not_gone_after_all_is_asked_for_itself(self) -> None:
        with subprocess.Popen(["sleep", "300"]) as child:
            alive = Processes(pid=child.pid, started=_started(child.pid)).declared_gone("ann: burnt down")
            assert alive.running(), "it writes, and is seen to"
            child.kill()

    def test_what_is_recorded_without_a_host_is_left_out(self, manager: LockManager) -> None:
        works(manager, None)
        lease = acquire(manager, "other")
        manager.start_work(lease, "job", '{"kind": "submarine"}')
        assert hosts.recorded(manager.leases()) == []

    def test_the_refusal_names_the_queue_and_what_to_say(self) -> None:
        with pytest.raises(CannotTell, match=r"task of queue 'rack-3'.* hivelock host-gone worker-7$"):
            elsewhere(queue="rack-3").running()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="sets a host name of its own")
def test_a_process_that_ran_under_another_host_name_is_freed_once_its_host_is_declared_gone(
    manager: LockManager, airflow: Airflow
) -> None:
    script = "import json; from airflow_hivelock.work.applications import encode; from airflow_hivelock.work.processes import Processes; print(encode(Processes()))"
    said = subprocess.run(
        ["unshare", "--uts", "sh", "-c", f"hostname worker-9 && exec {sys.executable} -c '{script}'"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    manager.start_work(acquire(manager), "load", said.stdout.strip().splitlines()[-1])
    airflow.knows("run", "failed", load="failed")
    assert "on worker-9 (and what it started) can only be checked there" in next(iter(keep(3).values()))
    assert manager.leases(), "freed, although nobody has said that its host is gone"
    hosts.declare_gone(manager, hosts.on_host("worker-9", manager.leases()), reason="burnt down", user="ann")
    assert not keep()
    assert not manager.leases()


class Cluster:
    """A local stand-in for the two calls of Kubernetes' API that are used."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], tuple[str, str]] = {}
        self.status = 200
        self.page = 2
        self.asked: list[str] = []
        self.port = 0

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if self.status != 200:
            return self.status, {"kind": "Status", "message": "no"}
        parts = urlsplit(path)
        _, _, _, _, namespace, _, *name = parts.path.split("/")
        if name:
            found = self.pods.get((namespace, name[0]))
            return (200, _pod(namespace, name[0], *found)) if found else (404, {"kind": "Status"})
        every = [_pod(where, name, *said) for (where, name), said in self.pods.items() if where == namespace]
        first = int(parse_qs(parts.query).get("continue", ["0"])[0])
        after = {"continue": str(first + self.page)} if first + self.page < len(every) else {}
        return 200, {"kind": "PodList", "metadata": after, "items": every[first : first + self.page]}


def _pod(namespace: str, name: str, uid: str, phase: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": uid}
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": phase}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster, which Airflow's connection ``kubernetes_default`` leads to."""
    pytest.importorskip("airflow.providers.cncf.kubernetes")
    played = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, said = played.answer(self.path)
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("127.0.0.1"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    played.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    at = {"server": f"https://127.0.0.1:{server.server_port}", "certificate-authority": str(authority.ca)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": at}],
        "users": [{"name": "it", "user": {"token": "secret"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    connection = {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(config)}}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
    _account(tmp_path / "account", authority, monkeypatch)
    yield played
    server.shutdown()
    server.server_close()
    thread.join(10)


def _account(at: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that a pod of that cluster finds."""
    at.mkdir()
    (at / "namespace").write_text("airflow")
    (at / "ca.crt").write_bytes(authority.ca.read_bytes() + b"\n")
    (at / "token").write_text("secret")
    monkeypatch.setattr(driver_work, "ACCOUNT", at)
    mounted = f"612 598 8:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw\n"
    others = f"611 598 8:1 /var/lib/kubelet/pods/{OTHER}/volumes/x /scratch rw,relatime - ext4 /dev/sda1 rw\n"
    (at / "mountinfo").write_text(f"598 1 0:98 / / rw - overlay overlay rw\n{others}{mounted}")
    monkeypatch.setattr(pod, "MOUNTS", at / "mountinfo")


@pytest.fixture
def worker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """The record of a task in the pod ``worker-0``; the process that asks runs in another pod."""
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-0")
    recorded = Processes(host="worker-0")
    monkeypatch.setattr(socket, "gethostname", lambda: "triggerer-0")
    monkeypatch.setenv(pod.POD_UID, OTHER)
    return recorded


class TestPods:
    def test_a_task_records_its_pod(self, worker: Processes) -> None:
        assert worker.pod is not None
        assert (worker.pod.namespace, worker.pod.name, worker.pod.uid) == ("airflow", "worker-0", UID)
        assert applications.decode(applications.encode(worker)) == worker

    def test_what_runs_in_none_records_none(self) -> None:
        assert Processes().pod is None

    @pytest.mark.parametrize("uid", ["", "not a uid"])
    def test_a_pod_that_does_not_say_which_it_is_is_a_host_like_others(
        self, uid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _account(tmp_path / "account", Authority(tmp_path), monkeypatch)
        pod.MOUNTS.write_text("598 1 0:98 / / rw - overlay overlay rw\n")
        monkeypatch.setenv(pod.POD_UID, uid)
        assert Processes().pod is None

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_it_ends_with_its_pod(self, phase: str, worker: Processes, cluster: Cluster) -> None:
        cluster.pods["airflow", "worker-0"] = UID, "Running"
        with pytest.raises(CannotTell, match="pod worker-0 of namespace airflow is still there"):
            worker.running()
        cluster.pods["airflow", "worker-0"] = UID, phase
        assert not worker.running()

    def test_it_ends_when_its_pod_is_deleted(self, worker: Processes, cluster: Cluster) -> None:
        cluster.pods["airflow", "triggerer-0"] = OTHER, "Running"
        assert not worker.running()
        worker.stop()

    def test_a_later_pod_of_its_name_is_another(
        self, worker: Processes, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: "worker-0")  # who asks is in it
        assert not worker.is_here
        cluster.pods["airflow", "worker-0"] = OTHER, "Running"
        assert not worker.running()
        monkeypatch.setenv(pod.POD_UID, UID)
        assert worker.is_here

    def test_a_pod_whose_name_is_not_its_host_s_is_found_by_its_uid(self, worker: Processes, cluster: Cluster) -> None:
        cluster.pods |= {("airflow", f"pod-{number}"): (str(uuid.uuid4()), "Running") for number in range(5)}
        cluster.pods["airflow", "on-the-network-of-its-node"] = UID, "Running"
        with pytest.raises(CannotTell, match="is still there"):
            worker.running()

    @pytest.mark.parametrize(("status", "why"), [(403, "get and list on pods"), (500, "cannot be checked")])
    def test_without_an_answer_it_cannot_be_told(
        self, status: int, why: str, worker: Processes, cluster: Cluster
    ) -> None:
        cluster.status = status
        with pytest.raises(CannotTell, match=why):
            worker.running()

    def test_without_a_connection_a_pod_asks_by_its_own_service_account(
        self, worker: Processes, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from kubernetes.config import incluster_config

        monkeypatch.delenv("AIRFLOW_CONN_KUBERNETES_DEFAULT")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(driver_work.ACCOUNT / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(driver_work.ACCOUNT / "ca.crt"))
        assert not worker.running()
        assert cluster.asked

    def test_another_cluster_tells_nothing_of_it(self, worker: Processes, tmp_path: Path) -> None:
        assert worker.pod
        other = replace(worker, pod=replace(worker.pod, cluster="0" * 32))
        with pytest.raises(CannotTell, match="in another cluster"):
            other.running()

    def test_the_keeper_frees_what_a_deleted_pod_has_left(
        self, worker: Processes, cluster: Cluster, manager: LockManager, airflow: Airflow
    ) -> None:
        cluster.pods["airflow", "worker-0"] = UID, "Running"
        works(manager, worker)
        airflow.knows("run", "failed", load="failed")
        assert "is still there" in next(iter(keep(2).values()))
        del cluster.pods["airflow", "worker-0"]
        assert not keep()
        assert not manager.leases()

    @pytest.mark.parametrize(
        "wrong", [{"name": "../secrets/x"}, {"namespace": ""}, {"uid": "x"}, {"cluster": "\n"}, {"uid": 1}]
    )
    def test_what_no_pod_is_called_is_not_asked_for(self, wrong: dict[str, Any]) -> None:
        good = asdict(Pod("airflow", "worker-0", UID, "0" * 32))
        with pytest.raises(CannotTell):
            applications.decode(json.dumps({"kind": "processes", **asdict(Processes()), "pod": good | wrong}))
