"""Real Hive's ZooKeeper lock manager on its own, in one JVM: what a query's locks cost, exclude, and look like."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.servers.jvm import java
from tests.support.servers.releases import HIVE, class_path, java_home
from tests.support.servers.server import Server, ServerError
from tests.support.servers.wire import Wire
from tests.support.servers.zookeeper import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.servers.zookeeper import ZooKeeperServer

ANSWER_S = 120.0


@dataclass(frozen=True)
class Answer:
    """Whether Hive granted all the locks, or took none, and how long that took inside its JVM, in milliseconds."""

    granted: bool
    ms: float


@dataclass(frozen=True)
class HiveLocks:
    """One lock manager, which holds the locks of one query at a time."""

    wire: Wire
    name: str

    def lock(
        self, locks: Iterable[tuple[Sequence[str], str]], query: str = "select 1", *, explicit: bool = False
    ) -> Answer:
        """Lock, as a query does that needs *locks*: pairs of a path's components and a mode, as Hive names it.

        :param explicit: as LOCK TABLE does.
        :raises HiveError: where it holds some already.
        """
        wanted = [{"path": list(path), "mode": mode} for path, mode in locks]
        verdict, ms = self._send({"lock": wanted, "query": query, "explicit": explicit}).result(ANSWER_S)
        return Answer(verdict == "granted", float(ms))

    def locks(self) -> list[tuple[str, ...]]:
        """All locks there are, as SHOW LOCKS EXTENDED has them: object, mode, query id, time, explicit or not, query.

        The last four are left out where Hive finds none.
        """
        return [tuple(json.loads(row)) for row in self._send({"list": None}).result(ANSWER_S)]

    def free(self, path: Sequence[str]) -> int:
        """Free all locks on exactly that object, as UNLOCK TABLE does, and return their number."""
        return int(self._send({"free": list(path)}).result(ANSWER_S)[0])

    def unlock(self) -> float:
        """Free what it holds, if anything; how long that took inside its JVM, in milliseconds."""
        return float(self._send({"unlock": True}).result(ANSWER_S)[0])

    def close(self) -> None:
        """End it, as a Hive session does; it has to be opened again."""
        self._send({"close": True}).result(ANSWER_S)

    def open(self, settings: dict[str, str]) -> None:
        """Make the lock manager, with these settings of Hive's."""
        self._send({"open": settings}).result(ANSWER_S)

    def _send(self, statement: object) -> Future[list[str]]:
        return self.wire.send(self.name, json.dumps(statement))


class HiveLockManagers(Server):
    """A JVM with lock managers of the release ``$HIVE``, which share one session with ZooKeeper as in a HiveServer2.

    :param tries: how often a lock is tried before the query is refused, a second apart.
    :param cleans: whether a session removes all empty nodes at its end (``hive.zookeeper.clean.extra.nodes``).
    :param config: more of Hive's settings.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        zookeeper: ZooKeeperServer,
        tries: int = 1,
        cleans: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(workdir / "lock_manager")
        self._settings = {
            "hive.zookeeper.quorum": zookeeper.hosts,
            "hive.lock.numretries": str(tries),
            "hive.unlock.numretries": "2",
            "hive.zookeeper.clean.extra.nodes": str(cleans).lower(),
            "hive.lock.sleep.between.retries": "1s",
            **(config or {}),
        }
        self._wire: Wire | None = None

    def session(self, name: str, namespace: str = NAMESPACE) -> HiveLocks:
        """A new lock manager, over the locks below ``/namespace``; *name* tells it from the others."""
        if self._wire is None:
            raise ServerError(f"{self.home} is not running")
        locks = HiveLocks(self._wire, name)
        locks.open({**self._settings, "hive.zookeeper.namespace": namespace})
        return locks

    def launch(self) -> None:
        super().launch()
        self._wire = Wire(self.process)

    def ready(self) -> bool:
        return self._wire is not None  # requests wait in the pipe until the JVM reads them

    def stdout(self) -> int:
        return subprocess.PIPE

    def command(self) -> list[str]:
        path = class_path(f"exec-{HIVE}") if HIVE else None
        return java("servers.LockManagerMain", heap_mb=256, path=path, home=java_home(HIVE))
