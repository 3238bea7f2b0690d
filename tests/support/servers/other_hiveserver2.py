"""HiveServer2 as other Hives released it, on their own metastore."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.servers.hive import lock_settings
from tests.support.servers.hiveserver2 import HiveServer2
from tests.support.servers.jvm import java, write_site
from tests.support.servers.metastore import LOG_SETTINGS, warehouse_settings
from tests.support.servers.other_hives import ReleasedMetastore
from tests.support.servers.releases import HIVE, HOME, class_path
from tests.support.servers.server import START_S, Server, accepts, free_port
from tests.support.servers.wire import HiveError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.servers.zookeeper import ZooKeeperServer


TXN_TIMEOUT_S = 300
IN_METASTORE = {
    "hive.support.concurrency": "true",
    "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
}
EXTERNAL_TOO = {"hive.txn.ext.locking.enabled": "true"}
"""Hive 4 makes plain tables external ones, and by default locks none of them; before 4.0 there was no such setting."""


class HiveServer2Client:
    """One session of a HiveServer2: runs statements as :class:`.HiveClient` does."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()

    def run(self, statement: str) -> list[str]:
        """The rows of a statement, no ``;`` at its end, as Hive prints them.

        :raises HiveError: Hive says no.
        """
        from pyhive.exc import OperationalError

        try:
            self._cursor.execute(statement)
        except OperationalError as error:
            status = error.args[0].status
            raise HiveError(status.errorCode, status.errorMessage) from error
        rows = self._cursor.fetchall() if self._cursor.description else []
        return ["\t".join(map(str, row)) for row in rows]


class ReleasedHiveServer2(Server):
    """The HiveServer2 of the release *hive*, and the metastore of the same.

    It locks in *zookeeper*, and a session that sets ``hive.txn.manager`` before anything else in the metastore. Without
    a *zookeeper* all lock in the metastore. No statement gets further than its locks: what would run it on a cluster is
    not here.
    """

    def __init__(self, workdir: Path, hive: str, *, zookeeper: ZooKeeperServer | None = None) -> None:
        super().__init__(workdir / "hiveserver2")
        self.port = free_port()
        self.hive = hive
        locks = lock_settings(zookeeper) if zookeeper else IN_METASTORE | (EXTERNAL_TOO if hive >= "4" else {})
        # In the metastore's, too, as at sites that share one hive-site.xml: clients ask it who keeps Hive's locks.
        # With what reads filters of partitions, and knows the formats of tables.
        driver = str(HOME.resolve() / f"service-{hive}" / "jars" / f"hive-exec-{hive}.jar")
        filters = {
            "metastore.expression.proxy": "org.apache.hadoop.hive.ql.optimizer.ppr.PartitionExpressionForMetastore"
        }
        self._metastore = ReleasedMetastore(
            workdir, hive, txn_timeout_s=TXN_TIMEOUT_S, config={**locks, **filters}, beside=driver
        )
        self.metastore_port = self._metastore.port
        self._config = {
            **warehouse_settings(workdir, self.home),
            **LOG_SETTINGS,
            **locks,
            "hive.metastore.uris": self._metastore.uri,
            "hive.exec.dynamic.partition.mode": "nonstrict",
            "hive.execution.engine": "mr",
            "hive.query.results.cache.enabled": "false",
            "hive.server2.enable.doAs": "false",
            "hive.server2.logging.operation.enabled": "false",
            "hive.server2.materializedviews.registry.impl": "DUMMY",
            "hive.server2.tez.initialize.default.sessions": "false",
            "hive.server2.thrift.bind.host": "127.0.0.1",
            "hive.server2.thrift.port": str(self.port),
            "hive.server2.webui.port": "0",
            "hive.stats.autogather": "false",
            "mapreduce.framework.name": "local",
        }

    def start(self, timeout_s: float = START_S) -> None:
        self._metastore.start(timeout_s)
        super().start(timeout_s)

    def stop(self) -> None:
        super().stop()
        self._metastore.stop()

    @contextmanager
    def session(self) -> Iterator[HiveServer2Client]:
        """A new one."""
        from pyhive import hive

        with hive.connect("127.0.0.1", self.port, username="bob") as connection:
            yield HiveServer2Client(connection)

    @property
    def metastore_uri(self) -> str:
        return self._metastore.uri

    def environment(self) -> Mapping[str, str]:
        return {"HIVE_CONF_DIR": str(self.home / "conf")}

    def ready(self) -> bool:
        return accepts(self.port)

    def command(self) -> list[str]:
        write_site(self.home / "conf" / "hive-site.xml", self._config)
        path = f"{self.home / 'conf'}{os.pathsep}{class_path(f'service-{self.hive}')}"
        main = "org.apache.hive.service.server.HiveServer2"
        return java("servers.Tether", "servers.Loader", main, heap_mb=512, path=path)


def any_hiveserver2(workdir: Path, *, zookeeper: ZooKeeperServer) -> HiveServer2 | ReleasedHiveServer2:
    """One of the release ``$HIVE``; without that of the one in PySpark's jars."""
    if HIVE:
        return ReleasedHiveServer2(workdir, HIVE, zookeeper=zookeeper)
    return HiveServer2(workdir, zookeeper=zookeeper)
