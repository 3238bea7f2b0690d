"""YARN's ResourceManager, as far as the Spark provider asks it."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ResourceManager(ThreadingHTTPServer):
    """As much of YARN's as the provider asks: every application is in one state, until it is killed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.state = ["FINISHED", "SUCCEEDED"]
        self.finished_s = 0.0
        self.forgets = False
        self.killed: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: ResourceManager

    def do_GET(self) -> None:
        if self.server.forgets:
            self.send_error(404)
            return
        state, final = self.server.state
        finished_ms = int(self.server.finished_s * 1000)
        self._answer({"app": {"state": state, "finalStatus": final, "finishedTime": finished_ms}})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.killed.append(self.path.split("/")[-2])
        self.server.state = ["KILLED", "KILLED"]
        self._answer({"state": "KILLED"})

    def _answer(self, body: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass
