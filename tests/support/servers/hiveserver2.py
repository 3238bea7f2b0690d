"""HiveServer2: Hive's SQL for clients on the network, and a metastore, in one JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.servers.hive import driver_settings, lock_settings
from tests.support.servers.jvm import java, write_site
from tests.support.servers.metastore import LOG_SETTINGS, derby_properties, derby_settings, warehouse_settings
from tests.support.servers.server import Server, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.servers.zookeeper import Ensemble, ZooKeeperServer


class HiveServer2(Server):
    """It locks in ZooKeeper; a session that sets ``hive.txn.manager`` before anything else locks in the metastore.

    :param auth: ``hive.server2.authentication``: ``NONE`` (SASL, any user), ``NOSASL``, or what *config* and the JVM's
        *properties* say more about.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        zookeeper: ZooKeeperServer | Ensemble,
        auth: str = "NONE",
        config: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(workdir / "hiveserver2")
        self.port = free_port()
        self.metastore_port = free_port()
        self._properties = properties or {}
        self._config = {
            **derby_settings(self.home),
            **warehouse_settings(workdir, self.home),
            **LOG_SETTINGS,
            **lock_settings(zookeeper),
            **driver_settings(),
            "hive.server2.authentication": auth,
            **(config or {}),
        }

    def environment(self) -> Mapping[str, str]:
        return {"HIVE_CONF_DIR": str(self.home / "conf")}

    def ready(self) -> bool:
        return accepts(self.port) and accepts(self.metastore_port)

    def command(self) -> list[str]:
        write_site(self.home / "conf" / "hive-site.xml", self._config)
        return java(
            "servers.Tether",
            "servers.HiveServer2Main",
            str(self.port),
            str(self.metastore_port),
            heap_mb=512,
            properties={**derby_properties(self.home), **self._properties},
        )
