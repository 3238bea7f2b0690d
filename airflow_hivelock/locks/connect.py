"""connect: makes a lock manager from a URL."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.hive import coverage
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.url import check, check_options, shown

if TYPE_CHECKING:
    from collections.abc import Collection
    from urllib.parse import SplitResult


log = logging.getLogger(__name__)

_DATABASES = ("postgresql", "mysql", "mariadb", "sqlite")
_THRIFT = ("auth", "kerberos_service_name", "ssl", "ca", "recheck_s", "answer_s")
_ZOOKEEPER = (
    *("root", "chroot", "timeout_s", "patience_s", "passing_s", "query_chars", "auth", "kerberos_service_name"),
    *("ssl", "ca", "cert", "key", "key_password", "verify", "acl", "hive_acl"),
)


def connect(url: str) -> LockManager:
    """Return the lock manager for the lock store at *url*.

    ================  ==================================================================================================
    lock store        URL
    ================  ==================================================================================================
    ZooKeeper         ``zookeeper://[user:password@]host:port[,host:port…]/namespace``. The path is Hive's
                      ``hive.zookeeper.namespace``
    Hive's metastore  ``metastore://host[:9083][,host…]``: all servers of one metastore
    PostgreSQL        ``postgresql://user:password@host/database``
    MySQL, MariaDB    ``mysql://user:password@host/database``. ``mariadb://`` means the same
    SQLite            ``sqlite:///leases.db`` or ``sqlite:////var/lib/leases.db``: a file for the processes of one host
    HiveServer2       ``hiveserver2://[user[:password]@]host[:10000][/database]``. It lists Hive's locks and acquires
                      none
    memory            ``memory://[name]``: only for this process
    ================  ==================================================================================================

    Add options to the URL as in ``…?timeout_s=20&ssl=true``. Times are in seconds.

    Options of ZooKeeper:

    =========================  ======================  =================================================================
    option                     default                 meaning
    =========================  ======================  =================================================================
    ``root``                   ``/airflow_hivelock``   the node that contains the queue and the leases
    ``chroot``                 none                    a path above Hive's namespace and ``root``
    ``timeout_s``              10                      the session's time-out
    ``patience_s``             30                      how long a request at its turn gives way to Hive's own clients
    ``passing_s``              3600                    how long requests of higher priority may overtake a waiter, at
                                                       most a year. With 0 they never do. For a waiter of priority 0 or
                                                       less: 168 times as long
    ``query_chars``            500                     Hive's ``hive.lock.query.string.max.length``: how many characters
                                                       of the SQL a lock node contains, at most 500
    ``auth``                   none                    ``DIGEST``, ``DIGEST-MD5`` or ``KERBEROS``. With a login, the
                                                       default is ``DIGEST``
    ``kerberos_service_name``  ``zookeeper``           the first part of the servers' principal
    ``ssl``                    ``false``               ``true`` uses TLS
    ``ca``                     the system's            a PEM file with the trusted authorities
    ``cert``, ``key``          none                    PEM files with this client's certificate and its key
    ``key_password``           none                    the password of ``key``
    ``verify``                 ``full``                ``ca`` skips the check of the server's name, and ``none`` skips
                                                       all checks
    ``acl``                    see meaning             who may write the package's own nodes: ``open``, or a list such
                                                       as ``creator,sasl:ops``. The default is ``creator`` with
                                                       ``auth``, and otherwise ``open``
    ``hive_acl``               ``world:anyone``        who else may lock below the nodes that this client creates in
                                                       Hive's namespace, as in ``sasl:hive``
    =========================  ======================  =================================================================

    Options of PostgreSQL, MySQL, MariaDB and SQLite:

    =========================  ======================  =================================================================
    option                     default                 meaning
    =========================  ======================  =================================================================
    ``expiry``                 ``suspect``             ``suspect``: an expired lease blocks until it is released.
                                                       ``frees``: an expired lease blocks no request
    ``max_lease_s``            none                    the longest time that a lease may last, with its renewals
    ``passing_s``              3600                    as for ZooKeeper
    ``prefix``                 ``hivelock_``           the start of each table's name
    ``schema``                 ``airflow_hivelock``    the schema of the tables. In MySQL: the database of the tables,
                                                       by default the URL's
    ``timeout_s``              10                      the longest wait for a connection or a statement
    =========================  ======================  =================================================================

    Further options of MySQL and MariaDB. PostgreSQL takes libpq's options instead, such as ``sslmode``:

    =========================  ======================  =================================================================
    option                     default                 meaning
    =========================  ======================  =================================================================
    ``ssl_ca``                 the system's            a PEM file with the trusted authorities
    ``ssl_cert``, ``ssl_key``  none                    PEM files with this client's certificate and its key
    ``ssl_key_password``       none                    the password of ``ssl_key``
    ``ssl_mode``               see meaning             ``disabled``, ``required``, ``verify_ca`` or ``verify_identity``,
                                                       the default with one of these files. Without them, TLS is used
                                                       without checks if the server has it
    ``unix_socket``            none                    the path of the server's socket on this host
    =========================  ======================  =================================================================

    Options of Hive's metastore and of HiveServer2:

    =========================  ======================  =================================================================
    option                     default                 meaning
    =========================  ======================  =================================================================
    ``timeout_s``              the server's            only metastore: ``hive.txn.timeout``. The metastore frees a lock
                                                       without a heartbeat after this time
    ``catalog``                the server's            only metastore: ``metastore.catalog.default``, the catalog of all
                                                       locks. Hive 4.3 and later separate catalogs
    ``recheck_s``              10                      the longest pause between two polls of a waiter. HiveServer2: 30
    ``answer_s``               10                      the longest wait for each part of an answer. HiveServer2: 60. A
                                                       whole answer may take six times as long
    ``auth``                   ``NONE``                ``KERBEROS`` uses the ticket of this process. HiveServer2 also
                                                       takes ``NOSASL``, and ``LDAP``, its default with a password
    ``kerberos_service_name``  ``hive``                the first part of the server's principal
    ``ssl``, ``ca``            ``false``               as for ZooKeeper
    =========================  ======================  =================================================================

    :raises InvalidRequest: the URL is malformed, or has an unknown option.
    :raises StoreUnavailable: the store does not answer within ``timeout_s`` or ``answer_s``.
    :raises AccessDenied: the store refuses this client.
    :raises Unsupported: a library that this store needs is missing.
    """
    check(url)
    parts = urlsplit(url)
    database = parts.scheme.partition("+")[0]
    match database if database in _DATABASES else parts.scheme:
        case "memory":
            from airflow_hivelock.locks.backends.memory import MemoryBackend

            _options(parts, ())
            return LockManager(_shared(MemoryBackend, parts.netloc))
        case "zookeeper":
            from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend

            options = _options(parts, _ZOOKEEPER)
            return LockManager(ZooKeeperBackend.connect(parts.netloc, namespace=unquote(parts.path), **options))
        case "postgresql" | "mysql" | "mariadb" | "sqlite":
            try:
                from airflow_hivelock.locks.backends.database import DatabaseBackend
            except ImportError as error:
                extra = "mysql" if database in ("mysql", "mariadb") else "postgres"
                raise Unsupported(
                    f"{parts.scheme}:// needs SQLAlchemy 2.0.36 or later: pip install 'airflow-hivelock[{extra}]'"
                ) from error
            return LockManager(DatabaseBackend.connect(url))
        case "metastore":
            from airflow_hivelock.locks.backends.metastore import MetastoreBackend

            options = _options(parts, {*_THRIFT, "timeout_s", "catalog"})
            return _checked(LockManager(MetastoreBackend.connect(parts.netloc, **options)))
        case "hiveserver2":
            from airflow_hivelock.locks.backends.hiveserver2 import HiveServer2Backend

            return _checked(LockManager(HiveServer2Backend.connect(parts, **_options(parts, _THRIFT))))
        case scheme:
            raise InvalidRequest(
                f"{scheme or 'a URL without a scheme'} is not a lock store. Use zookeeper://host:2181/hive_zookeeper_namespace, "
                "metastore://host:9083, postgresql://user@host/database, mysql://user@host/database, sqlite:///leases.db or "
                "memory://. To look at locks only, use hiveserver2://host:10000"
            )


def _checked(manager: LockManager) -> LockManager:
    """Return *manager*; log a warning if Hive does not see its locks."""
    first, *_ = coverage.check(manager)
    if first.warning:
        log.warning("%s", first.text)
    return manager


def _options(parts: SplitResult, known: Collection[str]) -> dict[str, str]:
    """The options in the URL's query, for the backend to check."""
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise InvalidRequest(f"{shown(parts.geturl())!r}: {name} is given twice. Keep one of them")
        options[name] = value
    check_options(parts.geturl(), options, known)
    return options


_shared = cache(lambda backend, name: backend())
