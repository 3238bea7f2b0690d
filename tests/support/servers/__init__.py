"""Real ZooKeeper, Hive and Hive metastore out of PySpark's own jars, for tests, demo and benchmarks.

They need a JDK 17 and PySpark, nothing else: no cluster, no container, no download. Each server is one
JVM with a small heap, a log file and a data directory below the ``workdir`` it is given; leaving its
``with`` block stops it, and so does the death of this process.
"""

from __future__ import annotations

from tests.support.servers.hive import HiveClient, HiveSession
from tests.support.servers.hiveserver2 import HiveServer2
from tests.support.servers.mariadb import MariaDBServer
from tests.support.servers.metastore import Metastore
from tests.support.servers.other_hives import lock_metastore
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.server import Server, ServerError, free_port
from tests.support.servers.wire import HiveError
from tests.support.servers.zookeeper import Ensemble, SecuredZooKeeper, ZooKeeperServer

__all__ = [
    "Ensemble",
    "HiveClient",
    "HiveError",
    "HiveServer2",
    "HiveSession",
    "MariaDBServer",
    "Metastore",
    "PgBouncer",
    "PostgresServer",
    "RedisServer",
    "SecuredZooKeeper",
    "Server",
    "ServerError",
    "ZooKeeperServer",
    "free_port",
    "lock_metastore",
]
