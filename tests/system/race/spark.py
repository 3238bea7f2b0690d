"""Spark drivers: one that stays up and takes orders, and one that runs a user's job to its end."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tests.support import programs
from tests.support.servers import Metastore, Server, ServerError
from tests.system.race.order import Order, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
SPARK = os.environ.get("SPARK")
"""The Spark that runs the jobs, 3.5 or 4.0, in its own environment. None: the Spark of this Python."""

PYTHON = ROOT / f".venv-spark-{SPARK}" / "bin" / "python" if SPARK else Path(sys.executable)
"""The Python that runs the jobs; spark-submit is in the same folder. The servers and Airflow use this process's Python."""

REPLY_S = 600.0
SUBMIT_S = 600.0

SPARK_SUBMIT = PYTHON.with_name("spark-submit")


def submit(application: Path, *arguments: str, cores: int = 1) -> list[str]:
    """The command that submits a PySpark application with this Python's PySpark."""
    # The metastore's settings have the jars of this Python's Spark.
    options = ["--master", f"local[{cores}]", *(["--conf", "spark.driver.extraClassPath="] if SPARK else [])]
    return [str(SPARK_SUBMIT), *options, str(application), *arguments]


def environment(metastore: Metastore) -> dict[str, str]:
    """Variables for :func:`submit`, in addition to this process's own."""
    return {
        "SPARK_CONF_DIR": str(metastore.spark_conf_dir),
        "PYSPARK_PYTHON": str(PYTHON),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run_job(metastore: Metastore, application: Path, *arguments: str, cores: int = 1) -> str:
    """Run a user's job to its end, and return its output.

    :raises RuntimeError: the job failed.
    """
    own = {**os.environ, **environment(metastore)}
    return programs.run(submit(application, *arguments, cores=cores), SUBMIT_S, env=own, cwd=metastore.workdir)


class ResidentSpark(Server):
    """A driver under spark-submit that runs one order after the other. A context manager."""

    def __init__(self, workdir: Path, metastore: Metastore) -> None:
        super().__init__(workdir)
        self._metastore = metastore
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connection: socket.socket | None = None
        self._stream: TextIO | None = None

    def send(self, order: Order) -> None:
        """Start an order."""
        self._open_stream.write(order.to_line())
        self._open_stream.flush()

    def receive(self) -> Reply:
        """The answer to the latest order.

        :raises ServerError: the driver died.
        :raises TimeoutError: the answer is late.
        """
        line = self._open_stream.readline()
        if not line:
            error = ServerError(f"{self.home} ended within an order")
            error.add_note(self.tail())
            raise error
        return Reply.from_line(line)

    def run(self, order: Order) -> Reply:
        """Run one order to its end."""
        self.send(order)
        return self.receive()

    def go_on(self) -> None:
        """Let the paused order continue."""
        self._open_stream.write("\n")
        self._open_stream.flush()

    def suspend(self) -> None:
        """Stop its JVM and its Python with SIGSTOP."""
        os.killpg(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let its JVM and its Python continue, with SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def command(self) -> list[str]:
        return submit(Path(__file__).with_name("job.py"), str(self._listener.getsockname()[1]))

    def environment(self) -> Mapping[str, str]:
        return environment(self._metastore)

    def ready(self) -> bool:
        arrived, _, _ = select.select([self._listener], [], [], 0)
        if arrived:
            self._connection, _ = self._listener.accept()
            self._connection.settimeout(REPLY_S)
            self._stream = self._connection.makefile("rw")
        return bool(arrived)

    def stop(self) -> None:
        """Close the connection, which ends the driver. Kill the driver if it does not end."""
        self._listener.close()
        if self._stream is not None and self._connection is not None:
            self._stream.close()
            self._connection.close()
        super().stop()

    @property
    def _open_stream(self) -> TextIO:
        if self._stream is None:
            raise ServerError(f"{self.home} is not running")
        return self._stream
