"""Make a store from a URL: ``sqlite:///leases.db``, ``postgresql://user:password@host/database?expiry=frees``,
``mysql://…``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import exc, make_url

from airflow_hivelock.locks.backends.database.store import Store
from airflow_hivelock.locks.backends.database.tables import StoreTables
from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.queueing import PASSING_S
from airflow_hivelock.locks.url import DAY_S, check_options, seconds
from airflow_hivelock.locks.url import shown as without_passwords

if TYPE_CHECKING:
    from sqlalchemy import URL

    from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect

EXPIRY = ("suspect", "frees")
DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
SCHEMAS = {"postgresql": "airflow_hivelock", "mysql": "", "mariadb": ""}
"""The default schemas of the databases that have any. In PostgreSQL it contains no functions or tables of other roles."""

OPTIONS = ("expiry", "max_lease_s", "passing_s", "prefix", "schema", "timeout_s")
HOSTS = ("host", "port")
"""libpq's options that can be given several times, to name several servers."""


def open_store(text: str) -> tuple[Store, float | None]:
    """Return the store at the URL, and the longest that a lease may last in it.

    :raises InvalidRequest: the URL is malformed; the message does not contain the password.
    :raises Unsupported: a library is missing.
    """
    try:
        url = make_url(text)
        shown = without_passwords(text)
    except (exc.ArgumentError, ValueError):  # their messages repeat the URL
        raise InvalidRequest(
            "the URL of the lock store cannot be read. Write postgresql://user:password@host:5432/database"
        ) from None
    database = url.get_backend_name()
    dialect_class = _dialect(url)
    ours = [name for name in OPTIONS if name != "schema" or database in SCHEMAS]
    check_options(text, url.query, (*ours, *dialect_class.OPTIONS))
    if twice := [name for name, value in url.query.items() if not isinstance(value, str) and name not in HOSTS]:
        raise InvalidRequest(f"{shown}: {twice[0]} is given twice. Keep one of them")
    options = {name: str(value) for name, value in url.query.items()}
    expiry = options.get("expiry", EXPIRY[0])
    if expiry not in EXPIRY:
        raise InvalidRequest(f"{shown}: expiry={expiry!r} is unknown. Use {' or '.join(EXPIRY)}")
    most = options.get("max_lease_s")
    url = url.difference_update_query(OPTIONS)
    schema = options.get("schema") or SCHEMAS.get(database, "")
    tables = StoreTables(options.get("prefix", "hivelock_"), schema)
    timeout_s = seconds("timeout_s", options.get("timeout_s", "10"), most_s=DAY_S)
    passing_s = seconds("passing_s", options.get("passing_s", PASSING_S), or_none=True)
    try:
        store = Store(url, dialect_class(tables, timeout_s), tables, frees=expiry == "frees", passing_s=passing_s)
    except InvalidRequest:
        raise
    except (exc.ArgumentError, ValueError, TypeError):  # their messages repeat the URL
        raise InvalidRequest(f"{shown} is not a URL for {database}. Check its form and its options") from None
    return store, seconds("max_lease_s", most) if most is not None else None


def _dialect(url: URL) -> type[DatabaseDialect]:
    name, _, driver = url.drivername.partition("+")
    if driver and driver != DRIVERS.get(name, driver):
        raise InvalidRequest(
            f"{url.drivername}:// names a driver that may ignore time-outs. Write {name}://, which uses {DRIVERS[name]}"
        )
    match name:
        case "sqlite":
            from airflow_hivelock.locks.backends.database.sqlite import SQLite

            return SQLite
        case "postgresql":
            try:
                from airflow_hivelock.locks.backends.database.postgresql import PostgreSQL
            except ImportError as error:
                raise Unsupported("postgresql:// needs psycopg: pip install 'airflow-hivelock[postgres]'") from error
            return PostgreSQL
        case "mysql" | "mariadb":
            try:
                from airflow_hivelock.locks.backends.database.mysql import MySQL
            except ImportError as error:
                raise Unsupported("mysql:// needs PyMySQL: pip install 'airflow-hivelock[mysql]'") from error
            return MySQL
        case other:
            raise InvalidRequest(
                f"{other}:// is not a lock store. Use postgresql://user@host/database, mysql://user@host/database or "
                "sqlite:///leases.db"
            )
