"""Write the golden files of this version: ``python -m tests.golden 0.1.0``, or only some: ``… stores``."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from airflow_hivelock.locks import LockManager, connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.golden import scene, stored
from tests.golden.meaning import meaning
from tests.support.servers import PostgresServer, ZooKeeperServer
from tests.support.servers.postgres import binaries

HERE = Path(__file__).parent
SCHEMA = "golden"


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def zookeeper(folder: Path, work: Path) -> None:
    with ZooKeeperServer(work / "zookeeper") as server:
        backend = ZooKeeperBackend.connect(server.hosts, stored.NAMESPACE, root=stored.ROOT, timeout_s=10)
        with LockManager(backend) as manager:
            scene.make(manager)
            write(folder, "zookeeper.json", stored.dump(backend.store.client))
    write(folder, "zookeeper.meaning.json", meaning(stored.opened(folder / "zookeeper.json")))


def sqlite(folder: Path, work: Path) -> None:
    with connect(f"sqlite:///{work}/leases.db") as manager:
        scene.make(manager)
        write(folder, "sqlite.meaning.json", meaning(manager))
    with sqlite3.connect(work / "leases.db") as connection:
        (folder / "sqlite.sql").write_text("\n".join(connection.iterdump()) + "\n")


def postgresql(folder: Path, work: Path) -> None:
    with PostgresServer(work / "postgres") as server:
        with connect(f"{server.url}?schema={SCHEMA}") as manager:
            scene.make(manager)
            write(folder, "postgresql.meaning.json", meaning(manager))
        url = server.url.replace("postgresql+psycopg", "postgresql")
        options = ["--schema", SCHEMA, "--inserts", "--no-owner", "--no-privileges", "--dbname", url]
        dump = subprocess.run([binaries() / "pg_dump", *options], check=True, capture_output=True, text=True).stdout
    lines = [
        line
        for line in dump.splitlines()
        if line and not line.startswith(("--", "SET ", "\\", "SELECT pg_catalog.set_config"))
    ]
    (folder / "postgresql.sql").write_text("\n".join(lines) + "\n")


def passed(folder: Path) -> None:
    from tests.golden import passed as values  # Airflow, which the stores do not need

    written = values.written()
    write(folder, "passed.json", written)
    write(folder, "passed.meaning.json", values.meaning(written))


if __name__ == "__main__":
    to = HERE / sys.argv[1]
    to.mkdir()
    with tempfile.TemporaryDirectory() as temporary:
        for make in (zookeeper, sqlite, postgresql):
            make(to, Path(temporary))
    if sys.argv[2:] != ["stores"]:
        passed(to)
