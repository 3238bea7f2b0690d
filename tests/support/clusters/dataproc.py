"""Dataproc's job controller: gRPC over TLS, reached by its public name through a proxy of CONNECT."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.support.clusters.cluster import END_S, Cluster, Refused, Silent, Unknown
from tests.support.servers.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

REGION = "us-east1"
HOST = f"{REGION}-dataproc.googleapis.com"
SERVICE = "google.cloud.dataproc.v1.JobController"


@dataclass
class Dataproc(Cluster):
    """Jobs of one Dataproc cluster. Google's clients have no setting for the address: ``grpc_proxy`` leads them here.

    :param directory: for its certificate.
    """

    kind = "dataproc"
    conn_id = "google_cloud_default"

    directory: Path = field(kw_only=True)

    def connection(self) -> Mapping[str, Any]:
        return {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True, "project": "writers"}}

    def environment(self) -> Mapping[str, str]:
        return {
            "grpc_proxy": f"http://127.0.0.1:{self._proxy.port}",
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self._ca),
        }

    def __enter__(self) -> Self:
        import grpc
        from google.cloud.dataproc_v1 import types

        self._grpc, self._types = grpc, types
        authority = Authority(self.directory)
        self._ca = authority.ca
        pem = authority.issue(HOST).read_bytes()
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._answering(call), request.deserialize, types.Job.serialize)
            for name, call, request in (
                ("SubmitJob", self._submit, types.SubmitJobRequest),
                ("GetJob", self._get, types.GetJobRequest),
                ("CancelJob", self._cancel, types.CancelJobRequest),
            )
        }
        self._server = grpc.server(ThreadPoolExecutor(16, "dataproc"))
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
        self._server.start()
        self._proxy = _Proxy(port)
        return self

    def __exit__(self, *exc: object) -> None:
        self._proxy.close()
        self._server.stop(None).wait()
        super().__exit__(*exc)

    def name(self, number: int) -> str:
        return f"job-{number}"

    def _answering(self, call: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            try:
                return call(request)
            except Silent:
                context.abort(self._grpc.StatusCode.UNAVAILABLE, "silent")
            except Refused:
                context.abort(self._grpc.StatusCode.PERMISSION_DENIED, "not you")
            except Unknown as error:
                context.abort(self._grpc.StatusCode.NOT_FOUND, str(error))

        return answer

    def _submit(self, request: Any) -> Any:
        job = request.job.pyspark_job
        return self._job(self.submit([job.main_python_file_uri, *job.args], job_id=request.job.reference.job_id).id)

    def _get(self, request: Any) -> Any:
        return self._job(request.job_id)

    def _cancel(self, request: Any) -> Any:
        self.job(request.job_id).cancel()
        return self._job(request.job_id)

    def _job(self, job_id: str) -> Any:
        states = self._types.JobStatus.State
        job = self.job(job_id)
        shown = {"running": states.RUNNING, "succeeded": states.DONE, "failed": states.ERROR}
        return self._types.Job(
            reference={"project_id": "writers", "job_id": job.id},
            placement={"cluster_name": "writers"},
            status={"state": shown.get(job.state, states.CANCELLED)},
        )


class _Proxy:
    """Whatever name is asked for, it leads to one port."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(END_S)

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, name="CONNECT", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (byte := client.recv(1)):
                    return
                head += byte
            with socket.create_connection(("127.0.0.1", self._to_port)) as server:
                self._open.append(server)
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join(END_S)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
