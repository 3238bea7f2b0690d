"""A stand-in with JSON over HTTP."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.support.clusters.cluster import Cluster, Refused, Silent, Unknown


@dataclass(frozen=True)
class Request:
    """A call.

    :param path: its parts.
    :param target: what AWS' calls have in place of a path: ``ElasticMapReduce.DescribeStep``.
    """

    method: str
    path: tuple[str, ...]
    query: dict[str, str]
    body: Any
    target: str


@dataclass
class HttpCluster(Cluster):
    """:meth:`answer` is the table of its calls."""

    _server: ThreadingHTTPServer = field(init=False)

    @abstractmethod
    def answer(self, asked: Request) -> Any:
        """What becomes the JSON of the answer.

        :raises Silent: the connection is closed without one.
        :raises Refused: 403.
        :raises Unknown: 404.
        """

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        cluster = self

        class Handler(_Handler):
            def answer(self, asked: Request) -> Any:
                return cluster.answer(asked)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name=self.kind, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        super().__exit__(*exc)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        asked = Request(
            self.command,
            tuple(part for part in parts.path.split("/") if part),
            dict(parse_qsl(parts.query)),
            body,
            self.headers.get("X-Amz-Target", ""),
        )
        try:
            status, answer = 200, self.answer(asked)
        except Unknown as error:
            status, answer = _failure(404, "NotFound", f"no {error}")
            answer["details"] = {"name": str(error)}
        except Refused:
            status, answer = _failure(403, "AccessDenied", "not you")
        except Silent:
            self.close_connection = True
            return
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):  # who asked has been killed
            self.close_connection = True

    do_POST = do_DELETE = do_PATCH = do_PUT = do_GET

    def answer(self, asked: Request) -> Any:
        raise NotImplementedError

    def log_message(self, *args: object) -> None:
        pass


def _failure(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    """As Kubernetes says it, and AWS."""
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message, "__type": reason}
