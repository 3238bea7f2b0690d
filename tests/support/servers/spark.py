"""A standalone Spark cluster: a master and one worker, which starts executors and, in cluster mode, drivers."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from tests.support.servers.jvm import jars, java
from tests.support.servers.server import START_S, Server, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CORES = 4
MEMORY = "2g"
"""What the worker promises to others; it does not look what there is."""


class SparkMaster(Server):
    """The master of a standalone cluster on 127.0.0.1, with its REST server, which tells how drivers are."""

    def __init__(self, workdir: Path) -> None:
        super().__init__(workdir / "spark_master")
        self.port, self.rest_port, self.ui_port = free_port(), free_port(), free_port()

    @property
    def url(self) -> str:
        """As ``--master`` takes it."""
        return f"spark://127.0.0.1:{self.port}"

    def state(self) -> Any:
        """What its page shows: workers, applications and drivers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/json/", timeout=60) as answer:
            return json.load(answer)

    def ready(self) -> bool:
        return accepts(self.port) and accepts(self.rest_port) and accepts(self.ui_port)

    def environment(self) -> Mapping[str, str]:
        return {"SPARK_LOCAL_IP": "127.0.0.1"}

    def command(self) -> list[str]:
        properties = {"spark.master.rest.enabled": "true", "spark.master.rest.port": str(self.rest_port)}
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.ui_port)]
        return java("servers.Tether", _main("master.Master"), *where, heap_mb=128, properties=properties)


class SparkWorker(Server):
    """Its worker. Everything that it has started ends with it."""

    def __init__(self, workdir: Path, master: SparkMaster) -> None:
        super().__init__(workdir / "spark_worker")
        self._master = master

    def ready(self) -> bool:
        return any(worker["state"] == "ALIVE" for worker in self._master.state()["workers"])

    def environment(self) -> Mapping[str, str]:
        # spark-class would set the last; without it the worker finds no jars for its executors.
        return {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(jars().parent), "SPARK_SCALA_VERSION": "2.13"}

    def command(self) -> list[str]:
        offers = ["--host", "127.0.0.1", "--webui-port", str(free_port()), "--cores", str(CORES), "--memory", MEMORY]
        where = ["--work-dir", str(self.home / "work"), self._master.url]
        return java("servers.Tether", _main("worker.Worker"), *offers, *where, heap_mb=128)


class SparkCluster:
    """Master and worker; a context manager."""

    def __init__(self, workdir: Path) -> None:
        self.master = SparkMaster(workdir)
        self.worker = SparkWorker(workdir, self.master)
        self._stack = ExitStack()

    def connection(self, deploy_mode: str) -> dict[str, Any]:
        """The fields of Airflow's connection to it."""
        return {
            "conn_type": "spark",
            "host": "spark://127.0.0.1",
            "port": self.master.port,
            "extra": {"deploy-mode": deploy_mode, "rest-port": str(self.master.rest_port)},
        }

    def drivers(self) -> dict[str, str]:
        """The state of every driver that was submitted in cluster mode, by id."""
        state = self.master.state()
        return {driver["id"]: driver["state"] for driver in [*state["activedrivers"], *state["completeddrivers"]]}

    def __enter__(self) -> Self:
        with self._stack as starting:
            for server in (self.master, self.worker):
                server.start(START_S)
                starting.callback(server.stop)
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()


def _main(name: str) -> str:
    return f"org.apache.spark.deploy.{name}"
