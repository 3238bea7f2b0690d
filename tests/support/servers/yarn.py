"""YARN and HDFS: a ResourceManager, a NodeManager, a NameNode and a DataNode, each a process that can be killed.

``make test-yarn`` fetches their classes from Maven's repository. The release is that of the client in PySpark's jars.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.support import programs
from tests.support.servers.jvm import jars, java, write_site
from tests.support.servers.server import START_S, Server, ServerError, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.servers.metastore import Metastore

HOME = Path(os.environ.get("YARN", ".venv/yarn"))

MEMORY_MB = 6144
"""What the NodeManager promises to others; it does not look what there is."""

_HDFS = "org.apache.hadoop.hdfs.server"
_YARN = "org.apache.hadoop.yarn.server"


class Daemon(Server):
    """One of them.

    :param conf: the directory of Hadoop's configuration, for all.
    :param ports: on which it answers once it is ready.
    """

    def __init__(self, home: Path, main: str, conf: Path, *ports: int) -> None:
        super().__init__(home)
        self._main, self._conf, self._ports = main, conf, ports

    def ready(self) -> bool:
        return all(map(accepts, self._ports))

    def command(self) -> list[str]:
        return self._java("servers.Tether", self._main)

    def _java(self, *arguments: str) -> list[str]:
        path = os.pathsep.join([str(self._conf), f"{jars()}/*", f"{HOME.resolve()}/jars/*"])
        return java(*arguments, heap_mb=192, path=path)


class NameNode(Daemon):
    """The one that knows which files there are."""

    def start(self, timeout_s: float = START_S) -> None:
        if not (self.home / "name").exists():
            command = self._java(self._main, "-format", "-nonInteractive")
            programs.run(command, timeout_s, ServerError, cwd=self.home)
        super().start(timeout_s)


class ResourceManager(Daemon):
    """The one that knows which applications there are; by default it forgets them when it ends."""

    def __init__(self, home: Path, conf: Path, web_port: int, *ports: int) -> None:
        super().__init__(home, f"{_YARN}.resourcemanager.ResourceManager", conf, web_port, *ports)
        self.url = f"http://127.0.0.1:{web_port}"

    def ready(self) -> bool:
        with suppress(OSError):
            return super().ready() and self.ask("info")["clusterInfo"]["haState"] == "ACTIVE"
        return False

    def ask(self, path: str) -> Any:
        """What its REST service says of ``/ws/v1/cluster/<path>``."""
        with urllib.request.urlopen(f"{self.url}/ws/v1/cluster/{path}", timeout=60) as answer:
            return json.load(answer)

    def applications(self) -> dict[str, str]:
        """The state of every application, by id."""
        return {app["id"]: app["state"] for app in (self.ask("apps")["apps"] or {}).get("app", ())}


class YarnCluster:
    """All four, on 127.0.0.1; a context manager. Everything that was started in containers ends with it."""

    def __init__(self, workdir: Path) -> None:
        home = workdir.resolve() / "yarn"
        ports = [free_port() for _ in range(12)]
        name, data, manager = ports[:2], ports[2:5], ports[5:8]
        self.home, self.conf = home, home / "conf"
        self.fs = f"hdfs://127.0.0.1:{name[0]}"
        self.resource_manager = ResourceManager(home / "resource_manager", self.conf, free_port(), *manager)
        self.servers: list[Server] = [
            NameNode(home / "name_node", f"{_HDFS}.namenode.NameNode", self.conf, *name),
            Daemon(home / "data_node", f"{_HDFS}.datanode.DataNode", self.conf, *data),
            self.resource_manager,
            Daemon(home / "node_manager", f"{_YARN}.nodemanager.NodeManager", self.conf, ports[11]),
        ]
        self._stack = ExitStack()
        self._write(name, data, manager, ports[8:])

    def connection(self, deploy_mode: str) -> dict[str, Any]:
        """The fields of Airflow's connection to it."""
        extra = {"deploy-mode": deploy_mode, "yarn_resourcemanager_webapp_address": self.resource_manager.url}
        return {"conn_type": "spark", "host": "yarn", "extra": extra}

    def drivers(self) -> dict[str, str]:
        """The state of every application, by id."""
        return self.resource_manager.applications()

    def environment(self, metastore: Metastore) -> dict[str, str]:
        """What spark-submit needs to know, to submit jobs on tables of *metastore*."""
        conf = metastore.spark_conf_dir
        settings = {
            # Not sent to the cluster for each job: all of it is this machine.
            "spark.yarn.jars": f"local:{jars()}/*",
            "spark.yarn.stagingDir": f"{self.fs}/staging",
            "spark.pyspark.python": sys.executable,
            "spark.hadoop.hive.metastore.uris": metastore.uri,
            "spark.yarn.am.memory": "256m",
            "spark.driver.memoryOverhead": "128m",
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "128m",
            "spark.executor.instances": "1",
            "spark.yarn.report.interval": "500ms",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with (conf / "spark-defaults.conf").open("a") as defaults:
            defaults.writelines(f"{key} {value}\n" for key, value in settings.items())
        return {
            "HADOOP_CONF_DIR": str(self.conf),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def __enter__(self) -> Self:
        if not (HOME / "jars").exists():
            raise ServerError(f"no jars in {HOME}: make test-yarn fetches them")
        with self._stack as starting:
            starting.callback(self._kill_containers)
            for server in self.servers:
                server.start(START_S)
                starting.callback(server.stop)
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _kill_containers(self) -> None:
        """A NodeManager that was killed has left them."""
        local = str(self.home / "node_manager")
        for process in psutil.process_iter():
            with suppress(psutil.Error, IndexError):
                if local in process.environ().get("CONTAINER_LOG", process.environ().get("LOG_DIRS", "")):
                    process.kill()

    def _write(self, name: list[int], data: list[int], manager: list[int], node: list[int]) -> None:
        def at(port: int) -> str:
            return f"127.0.0.1:{port}"

        hdfs: Mapping[str, str] = {
            "dfs.namenode.http-address": at(name[1]),
            "dfs.namenode.name.dir": (self.home / "name_node" / "name").as_uri(),
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.address": at(data[0]),
            "dfs.datanode.ipc.address": at(data[1]),
            "dfs.datanode.http.address": at(data[2]),
            "dfs.datanode.data.dir": (self.home / "data_node" / "data").as_uri(),
            "dfs.replication": "1",
        }
        yarn: Mapping[str, str] = {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.address": at(manager[0]),
            "yarn.resourcemanager.scheduler.address": at(manager[1]),
            "yarn.resourcemanager.resource-tracker.address": at(manager[2]),
            "yarn.resourcemanager.admin.address": at(free_port()),
            "yarn.resourcemanager.webapp.address": self.resource_manager.url.removeprefix("http://"),
            "yarn.resourcemanager.scheduler.class": f"{_YARN}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.resourcemanager.am.max-attempts": "1",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.address": at(node[0]),
            "yarn.nodemanager.localizer.address": at(node[1]),
            "yarn.nodemanager.collector-service.address": at(node[2]),
            "yarn.nodemanager.webapp.address": at(node[3]),
            "yarn.nodemanager.local-dirs": str(self.home / "node_manager" / "local"),
            "yarn.nodemanager.log-dirs": str(self.home / "node_manager" / "logs"),
            "yarn.nodemanager.resource.memory-mb": str(MEMORY_MB),
            "yarn.nodemanager.resource.cpu-vcores": "8",
            # It would stop where the machine's disk is nearly full, and kill what another job has made slow.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
        }
        write_site(self.conf / "core-site.xml", {"fs.defaultFS": self.fs, "hadoop.tmp.dir": str(self.home / "tmp")})
        write_site(self.conf / "hdfs-site.xml", hdfs)
        write_site(self.conf / "yarn-site.xml", yarn)
