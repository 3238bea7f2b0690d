"""The metastores of other Hives than the one in PySpark's jars."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.support import programs
from tests.support.servers.jvm import java, write_site
from tests.support.servers.metastore import Metastore, warehouse_settings
from tests.support.servers.postgres import SUPERUSER, PostgresServer
from tests.support.servers.releases import HIVE, HOME, class_path, java_home
from tests.support.servers.server import START_S, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_S = 300.0

_TOOLS = "org.apache.hadoop.hive.metastore.tools"
PACKED = ("4.1.0", "4.2.1")
"""Releases whose metastore is there only as hive-exec packs it, without the SQL of its schema."""

SCHEMA = "4.0.1"
"""Of which release those have it, and what is missing they make themselves: none of it is of locks.

Hive's own upgrades to them change indexes, and columns of statistics.
"""

_SCHEMA_TOOLS = {"3": f"{_TOOLS}.MetastoreSchemaTool", "4": f"{_TOOLS}.schematool.MetastoreSchemaTool"}


class ReleasedMetastore(Metastore):
    """The metastore of the release *hive* on a PostgreSQL of its own, the schema made by that release's own tool.

    Not on Derby: under several clients at once Hive 4 waits there for locks of its own, for ever.
    ``config`` adds to its configuration, and ``beside`` to its jars.
    """

    def __init__(
        self, workdir: Path, hive: str, *, txn_timeout_s: int, config: Mapping[str, str] | None = None, beside: str = ""
    ) -> None:
        super().__init__(workdir)
        self.hive = hive
        self._beside = beside
        self._database = PostgresServer(workdir)
        self._schema = SCHEMA if hive in PACKED else hive
        major = hive.partition(".")[0]
        self._schema_tool = _SCHEMA_TOOLS[major]
        self._config = {
            **warehouse_settings(workdir, self.home),
            "datanucleus.connectionPoolingType": "HikariCP",
            "datanucleus.schema.autoCreateAll": str(hive in PACKED).lower(),
            "hive.metastore.schema.verification": "false",
            "javax.jdo.option.ConnectionURL": f"jdbc:{self._database.url.replace(SUPERUSER + '@', '')}",
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": SUPERUSER,
            "hive.metastore.event.db.notification.api.auth": "false",
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
            "metastore.housekeeping.threads.on": "true",
            "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
            "metastore.task.threads.remote": "org.apache.hadoop.hive.metastore.txn.service.AcidHouseKeeperService",
            "metastore.acid.housekeeper.interval": "1s",
            # 4.2 elects a leader by locks, which it holds and shows as any.
            "metastore.housekeeping.leader.election": "host",
            "metastore.txn.timeout": f"{txn_timeout_s}s",
            **(config or {}),
        }

    def start(self, timeout_s: float = START_S) -> None:
        self._database.start(timeout_s)
        if not self._conf.exists():
            write_site(self._conf / "metastore-site.xml", self._config)
            self._make_schema()
        super().start(timeout_s)

    def stop(self) -> None:
        super().stop()
        self._database.stop()

    def spark_settings(self) -> Mapping[str, str]:
        """Hive 4 needs a client of its own, which its hive-exec contains; 3.1 works with that of 2.3.

        Hive's writer also needs a class of hadoop-hdfs, which is among the jars of the metastore.
        """
        if self.hive < "4":
            return {}
        jars = f"file://{class_path(f'exec-{self.hive}')}.jar,file://{class_path(self.hive)[:-1]}hadoop-hdfs-*.jar"
        return {
            "spark.sql.hive.metastore.version": self.hive,
            "spark.sql.hive.metastore.jars": "path",
            "spark.sql.hive.metastore.jars.path": jars,
        }

    def environment(self) -> Mapping[str, str]:
        (scripts,) = (HOME / self._schema).resolve().glob("schema/*")
        return {**super().environment(), "METASTORE_CONF_DIR": str(self._conf), "METASTORE_HOME": str(scripts)}

    def command(self) -> list[str]:
        main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        return self._java("servers.Tether", "servers.Loader", main, "-p", str(self.port))

    def _make_schema(self) -> None:
        command = self._java(self._schema_tool, "-dbType", "postgres", "-initSchema", hive=self._schema)
        programs.run(command, SCHEMA_S, ServerError, env={**os.environ, **self.environment()})

    @property
    def _conf(self) -> Path:
        return self.home / "conf"

    def _java(self, main: str, *arguments: str, hive: str | None = None) -> list[str]:
        path = os.pathsep.join(filter(None, (str(self._conf), class_path(hive or self.hive), self._beside)))
        return java(main, *arguments, heap_mb=320, path=path, home=java_home(hive or self.hive))


def lock_metastore(workdir: Path, *, txn_timeout_s: int) -> Metastore:
    """One with lock tables, of the release ``$HIVE``; without that of the one in PySpark's jars."""
    if HIVE:
        return ReleasedMetastore(workdir, HIVE, txn_timeout_s=txn_timeout_s)
    return Metastore(workdir, transactional=True, txn_timeout_s=txn_timeout_s)
