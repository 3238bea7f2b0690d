"""The Hive metastore: the server that several jobs and Hive share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.servers.jvm import LOG_CONFIG, driver, java, write_site
from tests.support.servers.server import Server, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


# Otherwise Hive turns to a configuration of its own, which logs below /tmp.
LOG_SETTINGS = {"hive.log4j.file": str(LOG_CONFIG), "hive.async.log.enabled": "false"}


def derby_settings(home: Path) -> dict[str, str]:
    """A metastore's own database: Derby below ``home``, its schema made when first used."""
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'metastore_db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "DBCP",
        "hive.metastore.schema.verification": "false",
    }


def warehouse_settings(workdir: Path, home: Path) -> dict[str, str]:
    """The location of the tables of ``workdir``, the same for all writers, and scratch below ``home``."""
    return {
        "fs.defaultFS": "file:///",
        "hive.metastore.warehouse.dir": warehouse_uri(workdir),
        "hadoop.tmp.dir": str(home / "tmp"),
        "mapreduce.jobtracker.staging.root.dir": str(home / "tmp" / "staging"),
        "hive.exec.scratchdir": str(home / "scratch"),
        "hive.exec.local.scratchdir": str(home / "scratch_local"),
        "hive.downloaded.resources.dir": str(home / "resources"),
        "hive.querylog.location": str(home / "querylog"),
    }


def warehouse_uri(workdir: Path) -> str:
    """``file:`` URI of the directory of the tables."""
    return (workdir.resolve() / "warehouse").as_uri()


def derby_properties(home: Path) -> dict[str, str]:
    """JVM properties for Derby: no fsync, which a SIGKILL does not miss, and its log below ``home``."""
    return {
        "derby.system.durability": "test",
        "derby.stream.error.file": str(home / "derby.log"),
    }


class Metastore(Server):
    """A Hive metastore with its database and the ``warehouse`` directory below ``workdir``.

    ``transactional``: its lock tables exist, and the thread runs that ends locks without a heartbeat for
    ``txn_timeout_s``. It listens on every interface: Hive has no setting for that.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        port: int | None = None,
        transactional: bool = False,
        txn_timeout_s: int = 300,
        config: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(workdir / "metastore")
        self.port = port or free_port()
        self.workdir = workdir
        self.warehouse = warehouse_uri(workdir)
        self._properties = properties or {}
        expiry = {
            "hive.support.concurrency": "true",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.compactor.initiator.on": "true",
            "hive.compactor.worker.threads": "1",
            "hive.txn.timeout": f"{txn_timeout_s}s",
            "hive.timedout.txn.reaper.start": "1s",
            "hive.timedout.txn.reaper.interval": "1s",
        }
        self._config = {
            **derby_settings(self.home),
            **warehouse_settings(workdir, self.home),
            **LOG_SETTINGS,
            **(expiry if transactional else {}),
            **(config or {}),
        }

    @property
    def uri(self) -> str:
        """As ``hive.metastore.uris`` takes it."""
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def spark_conf_dir(self) -> Path:
        """A directory for ``SPARK_CONF_DIR``: this metastore, its warehouse, and a small quiet driver."""
        path = self.home / "spark"
        site = {**warehouse_settings(self.workdir, path), "hive.metastore.uris": self.uri}
        write_site(path / "hive-site.xml", site)
        settings = {
            **driver(),
            "spark.driver.memory": "512m",
            "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
            "spark.master": "local[1]",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": self.warehouse,
            "spark.ui.enabled": "false",
            **self.spark_settings(),
        }
        (path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return path

    def spark_settings(self) -> Mapping[str, str]:
        """What else a Spark needs to speak with it."""
        return {}

    def environment(self) -> Mapping[str, str]:
        return {"HIVE_CONF_DIR": str(self.home / "conf")}

    def ready(self) -> bool:
        return accepts(self.port)

    def command(self) -> list[str]:
        write_site(self.home / "conf" / "hive-site.xml", self._config)
        return java(
            "servers.Tether",
            "servers.MetastoreMain",
            "-p",
            str(self.port),
            heap_mb=256,
            properties={**derby_properties(self.home), **self._properties},
        )
