"""Real Hive: clients with Hive's own driver and ZooKeeper lock manager, in one JVM."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.servers.jvm import java, write_site
from tests.support.servers.metastore import (
    LOG_SETTINGS,
    Metastore,
    derby_properties,
    derby_settings,
    warehouse_settings,
)
from tests.support.servers.server import Server, ServerError
from tests.support.servers.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.servers.zookeeper import Ensemble, ZooKeeperServer

STATEMENT_S = 60.0


@dataclass(frozen=True)
class HiveClient:
    """One Hive session of a JVM: its statements run in order, in parallel to those of other sessions."""

    hive: HiveSession
    name: str

    def run(self, statement: str, timeout_s: float = STATEMENT_S) -> list[str]:
        """The rows of a statement, no ``;`` at its end, as Hive prints them.

        HiveError when Hive says no, ServerError when its JVM ends first; TimeoutError leaves the
        statement running.
        """
        return self.submit(statement).result(timeout_s)

    def submit(self, statement: str) -> Future[list[str]]:
        """Begin a statement that may block: ``.done()``, and ``.result(timeout_s)`` as in :meth:`run`."""
        return self.hive.wire.send(self.name, statement)


class HiveSession(Server):
    """A Hive that locks in ZooKeeper, in a JVM of its own; ``session`` gives it more clients.

    Without a ``zookeeper`` it locks by the manager that ``config`` names.
    Without a ``metastore`` it keeps one of its own below ``workdir``. ``config`` adds to its
    configuration, and ``set`` statements change it for one client. Unless told otherwise it gives up a
    lock after a few tries, a second apart.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        zookeeper: ZooKeeperServer | Ensemble | None = None,
        metastore: Metastore | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(workdir / "hive")
        self._config = {
            **({"hive.metastore.uris": metastore.uri} if metastore else derby_settings(self.home)),
            **warehouse_settings(metastore.workdir if metastore else workdir, self.home),
            **LOG_SETTINGS,
            **(lock_settings(zookeeper) if zookeeper else {"hive.support.concurrency": "true"}),
            **driver_settings(),
            **(config or {}),
        }
        self._wire: Wire | None = None
        self._opening: Future[list[str]] | None = None

    def run(self, statement: str, timeout_s: float = STATEMENT_S) -> list[str]:
        """As :meth:`HiveClient.run`, in the session ``main``."""
        return self.session("main").run(statement, timeout_s)

    def submit(self, statement: str) -> Future[list[str]]:
        """As :meth:`HiveClient.submit`, in the session ``main``."""
        return self.session("main").submit(statement)

    def session(self, name: str) -> HiveClient:
        """The client of that name, made by its first statement."""
        return HiveClient(self, name)

    @property
    def wire(self) -> Wire:
        """The connection to the running JVM; ServerError when there is none."""
        if self._wire is None:
            raise ServerError(f"{self.home} is not running")
        return self._wire

    def launch(self) -> None:
        super().launch()
        self._wire = Wire(self.process)
        # The first statement opens the session and the metastore: later ones are quick.
        self._opening = self.submit("show databases")

    def ready(self) -> bool:
        return self._opening is not None and self._opening.done() and bool(self._opening.result())

    def stdout(self) -> int:
        return subprocess.PIPE

    def environment(self) -> Mapping[str, str]:
        return {"HIVE_CONF_DIR": str(self.home / "conf")}

    def command(self) -> list[str]:
        write_site(self.home / "conf" / "hive-site.xml", self._config)
        return java("servers.HiveMain", heap_mb=512, properties=derby_properties(self.home))


def lock_settings(zookeeper: ZooKeeperServer | Ensemble) -> dict[str, str]:
    """Locks in ZooKeeper; a lock is given up after a few tries."""
    managers = "org.apache.hadoop.hive.ql.lockmgr"
    return {
        "hive.support.concurrency": "true",
        "hive.txn.manager": f"{managers}.DummyTxnManager",
        "hive.lock.manager": f"{managers}.zookeeper.ZooKeeperHiveLockManager",
        "hive.zookeeper.quorum": zookeeper.hosts,
        "hive.lock.numretries": "2",
        "hive.unlock.numretries": "2",
        "hive.lock.sleep.between.retries": "1s",
    }


def driver_settings() -> dict[str, str]:
    """What Hive's driver does without what PySpark does not ship."""
    return {
        "hive.execution.engine": "mr",
        "mapreduce.framework.name": "local",
        "hive.exec.dynamic.partition.mode": "nonstrict",
        "hive.stats.autogather": "false",
        # Calcite is not among PySpark's jars.
        "hive.cbo.enable": "false",
    }
