"""Statements to the JVM that runs Hive and answers from it, a line of JSON each."""

from __future__ import annotations

import itertools
import json
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tests.support.servers.server import ServerError

if TYPE_CHECKING:
    import subprocess


class HiveError(Exception):
    """Hive refused or failed a statement: its response ``code`` (-1: it threw) and its ``message``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Wire:
    """The stdin and stdout of one process; safe to use from any thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a wire takes a process with its stdin and stdout piped")
        self._requests = process.stdin
        self._answers = process.stdout
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[list[str]]] = {}
        self._ended = False
        threading.Thread(target=self._read, name=f"wire-{process.pid}", daemon=True).start()

    def send(self, session: str, statement: str) -> Future[list[str]]:
        """The rows to come. They end as HiveError when Hive says no, as ServerError when the process ends."""
        answer: Future[list[str]] = Future()
        with self._lock:
            if self._ended:
                raise ServerError("the Hive process has ended")
            number = next(self._ids)
            self._waiting[number] = answer
            request = {"id": number, "session": session, "statement": statement}
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
                self._requests.flush()
            except (OSError, ValueError) as error:
                del self._waiting[number]
                raise ServerError("the Hive process has ended") from error
        return answer

    def _read(self) -> None:
        try:
            with self._answers:
                for line in self._answers:
                    self._settle(json.loads(line))
        finally:
            with self._lock:
                self._ended = True
            for answer in self._waiting.values():
                answer.set_exception(ServerError("the Hive process ended before it answered"))

    def _settle(self, answer: dict[str, Any]) -> None:
        with self._lock:
            waiting = self._waiting.pop(answer["id"])
        if answer["code"]:
            waiting.set_exception(HiveError(answer["code"], answer["message"]))
        else:
            waiting.set_result(answer["rows"])
