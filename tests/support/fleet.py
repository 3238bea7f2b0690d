"""A fleet of Python processes that work at once: it starts them, gives orders, hears answers, stops, kills and ends them.

An order and an answer are a line of JSON each, on the standard input and output of a worker. A worker is dismissed by
the end of its input.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_S = 300.0
FAILED = "a worker failed; its traceback is above"


class Worker:
    """One process.

    :param program: a module, or the path of a script.
    :param options: further options of ``subprocess.Popen``.
    """

    def __init__(self, program: str | Path, *arguments: object, **options: Any) -> None:
        what = [str(program)] if isinstance(program, Path) else ["-m", program]
        command = [sys.executable, *what, *map(str, arguments)]
        # Unbuffered: a line that has arrived is in the pipe, where `is_silent` looks.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **options)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def tell(self, *order: object) -> None:
        """Give an order."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    def hear(self) -> Any:
        """The next answer."""
        assert self.process.stdout
        assert not self.is_silent(ANSWER_S), f"no answer within {ANSWER_S:g} s"
        line = self.process.stdout.readline()
        assert line, FAILED
        return json.loads(line)

    def ask(self, *order: object) -> Any:
        """Give an order, and hear its answer."""
        self.tell(*order)
        return self.hear()

    def is_silent(self, for_s: float = 1.0) -> bool:
        """Whether no answer comes in that time."""
        assert self.process.stdout
        return not select.select([self.process.stdout], [], [], for_s)[0]

    def stop(self) -> None:
        """SIGSTOP it. It is stopped, or dead, when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT it, if it lives."""
        self.process.send_signal(signal.SIGCONT)

    def dismiss(self) -> None:
        """End its input."""
        assert self.process.stdin
        self.process.stdin.close()

    def end(self) -> None:
        """Dismiss it, and wait until it has ended well."""
        self.dismiss()
        assert self.process.wait(ANSWER_S) == 0, FAILED

    def kill(self) -> None:
        """SIGKILL it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


class Fleet:
    """Workers, in the order of their start. The end of its block kills what has not ended."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._pauses: list[threading.Timer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL all."""
        while self.workers:
            self.workers.pop().kill()

    def start(self, program: str | Path, *arguments: object, **options: Any) -> Worker:
        return self.join(Worker(program, *arguments, **options))

    def join(self, worker: Worker) -> Worker:
        self.workers.append(worker)
        return worker

    def lose(self, worker: Worker) -> None:
        """SIGKILL one that works."""
        assert not worker.has_ended, FAILED
        worker.kill()
        self.workers.remove(worker)

    def pause(self, worker: Worker, seconds: float) -> None:
        """Stop one for that time, while other things happen."""
        worker.stop()
        wake = threading.Timer(seconds, worker.resume)
        wake.start()
        self._pauses.append(wake)

    def tell(self, *order: object) -> None:
        """Give an order to all."""
        for worker in self.workers:
            worker.tell(*order)

    def hear(self) -> list[Any]:
        """An answer of each."""
        return [worker.hear() for worker in self.workers]

    def dismiss(self) -> None:
        """End the pauses, and the input of all."""
        while self._pauses:
            self._pauses.pop().join()
        for worker in self.workers:
            worker.dismiss()

    def have_ended(self) -> bool:
        """Whether all have ended; each must have ended well."""
        ended = [worker for worker in self.workers if worker.has_ended]
        assert not any(worker.process.returncode for worker in ended), FAILED
        return len(ended) == len(self.workers)

    def end(self) -> None:
        """Dismiss all, and wait until they have ended well."""
        self.dismiss()
        for worker in self.workers:
            worker.end()


# Within a worker.


def orders() -> Iterator[Any]:
    """The orders, until it is dismissed."""
    for line in sys.stdin:
        yield json.loads(line)


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


def dismissal() -> threading.Event:
    """An event that is set when the worker is dismissed. The worker then reads no more orders."""
    dismissed = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        dismissed.set()

    threading.Thread(target=wait, daemon=True).start()
    return dismissed
