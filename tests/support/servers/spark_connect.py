"""A server of Spark Connect, with Hive's catalog in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.local_spark import options
from tests.support.servers.jvm import jars, java
from tests.support.servers.server import Server, accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkConnectServer(Server):
    """It listens on 127.0.0.1. PySpark 4 has its classes, PySpark 3.5 has not."""

    def __init__(self, workdir: Path) -> None:
        super().__init__(workdir / "spark_connect")
        self.port = free_port()

    @staticmethod
    def missing() -> bool:
        """Whether this PySpark has no such server."""
        return not list(jars().glob("spark-connect_*.jar"))

    @property
    def url(self) -> str:
        """As ``SparkSession.builder.remote`` takes it."""
        return f"sc://127.0.0.1:{self.port}"

    def ready(self) -> bool:
        return accepts(self.port)

    def environment(self) -> Mapping[str, str]:
        return {"SPARK_LOCAL_IP": "127.0.0.1"}

    def command(self) -> list[str]:
        properties = {name: value for name, value in options(self.home).items() if "driver" not in name}
        properties |= {
            "derby.system.home": str(self.home),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.master": "local[2]",
        }
        return java("servers.Tether", MAIN, heap_mb=512, properties=properties)
