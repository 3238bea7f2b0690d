"""``python -m tests.support.servers.archive``: write :data:`jvm.ARCHIVE`.

A JVM writes it as it exits: the classes of a Spark job on a table of Hive, of Spark Connect and of ZooKeeper.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tests.support import programs
from tests.support.local_spark import options
from tests.support.patience import until
from tests.support.servers.jvm import ARCHIVE, driver
from tests.support.servers.metastore import derby_settings, warehouse_settings
from tests.support.servers.server import accepts, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
WRITE_S = 600
STATEMENTS = (
    "create table if not exists flights (delay int) partitioned by (dt string) stored as textfile",
    "insert overwrite table flights partition (dt = '2013-01-01') select 1",
    "select dt, avg(delay) from flights where dt = '2013-01-01' group by dt",
)


def write() -> None:
    """Run :func:`use` in a Spark job. The archive is there as a whole or not at all."""
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        written = Path(folder, ARCHIVE.name)
        metastore = free_port()
        settings = {
            **options(Path(folder)),
            **driver(f"-Dderby.system.home={folder}", f"-XX:ArchiveClassesAtExit={written}"),
            "spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{metastore}",
            "spark.master": "local[1]",
        }
        arguments = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        submit = Path(sys.executable).with_name("spark-submit")
        own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        programs.run(
            [submit, *arguments, __file__, folder, str(metastore)], WRITE_S, env={**os.environ, **own}, cwd=folder
        )
        written.replace(ARCHIVE)


def use(folder: Path, metastore: int) -> None:
    """Have Spark, a metastore of Hive and ZooKeeper load their classes."""
    spark = SparkSession.builder.getOrCreate()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    hive = jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    for name, value in {**derby_settings(folder), **warehouse_settings(folder, folder)}.items():
        conf.set(name, value)
    bridge = jvm.org.apache.hadoop.hive.shims.ShimLoader.getHadoopThriftAuthBridge()
    _beside(hive.metastore.HiveMetaStore.startMetaStore, metastore, bridge, conf)
    zookeeper = free_port()
    (folder / "zoo.cfg").write_text(f"dataDir={folder}/data\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n")
    words = gateway.new_array(jvm.String, 1)
    words[0] = str(folder / "zoo.cfg")
    _beside(jvm.org.apache.zookeeper.server.ZooKeeperServerMain.main, words)
    until(lambda: accepts(metastore) and accepts(zookeeper), "the servers have started")
    for statement in STATEMENTS:
        spark.sql(statement).collect()
    spark.stop()
    # The threads of the servers would keep the JVM.
    with suppress(Py4JError):
        jvm.java.lang.System.exit(0)


def _beside(call: Callable[..., object], *arguments: object) -> None:
    """Call what does not return. It ends with the JVM."""
    Thread(target=call, args=arguments, daemon=True).start()


if __name__ == "__main__":
    use(Path(sys.argv[1]), int(sys.argv[2])) if sys.argv[1:] else write()
