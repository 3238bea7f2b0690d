"""Make a lock manager from a URL."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.hive import coverage
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.url import check, shown

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

    ``zookeeper://[user:password@]host:port[,host:port…]/hive_zookeeper_namespace[?root=/airflow_hivelock&timeout_s=10&patience_s=30&passing_s=3600]``
    The path is Hive's ``hive.zookeeper.namespace``. ``root`` is the node of the queue and the leases. ``chroot`` is a
    path above both. ``timeout_s`` is the session's time-out. After ``patience_s`` a request at its turn stops giving
    way to Hive's clients. For ``passing_s``, 0 to a year, requests of higher priority overtake one that waits.
    ``query_chars`` is Hive's ``hive.lock.query.string.max.length``: how much of the SQL each lock node contains, 500
    characters at most. ``auth=DIGEST|DIGEST-MD5|KERBEROS``, ``kerberos_service_name``; ``ssl=true``, ``ca``, ``cert``,
    ``key``, ``key_password``, ``verify=full|ca|none``; ``acl=open|creator,scheme:id…``, ``hive_acl=scheme:id…``.
    ``postgresql://user:password@host/database[?expiry=suspect&max_lease_s=86400&passing_s=3600&prefix=hivelock_&schema=…&timeout_s=10]``
    With ``expiry=frees`` an expired lease blocks no request; otherwise it blocks until it is released. ``max_lease_s``:
    the longest that a lease may last, renewals included. ``passing_s``: for how long requests of higher priority
    overtake one that waits; 0: never. ``schema``: ``airflow_hivelock`` by default. Other options are libpq's, such as
    ``sslmode``.
    ``mysql://user:password@host/database[?…&ssl_ca=…&ssl_cert=…&ssl_key=…&ssl_key_password=…&ssl_mode=…&unix_socket=…]``
    The same in MySQL or MariaDB (``mariadb://`` means the same), where ``schema`` is another database.
    ``ssl_mode=disabled|required|verify_ca|verify_identity``. The default is ``verify_identity`` if one of the files is
    given; else TLS without a check, if the server has it. ``sqlite:///leases.db[?…]``, ``sqlite:////var/lib/leases.db``
    The same in a file that the processes of one host share.
    ``metastore://host[:9083][,host…][?timeout_s=300&recheck_s=10&auth=NONE&ssl=false]`` Servers of one metastore;
    :meth:`.MetastoreBackend.connect` has the options. ``timeout_s`` is the metastore's ``hive.txn.timeout``. If it is
    not given, the metastore is asked for it. ``catalog`` is its ``metastore.catalog.default``: Hive 4.3 and later keep
    the locks of catalogs apart. If it is not given, the metastore is asked for it.
    ``hiveserver2://[user[:password]@]host[:10000][/database][?auth=LDAP&ssl=false&recheck_s=30]`` Lists the locks that
    Hive holds, in any lock manager of Hive's. It acquires none. ``memory://[name]`` This process only.

    :raises InvalidRequest: the URL is malformed, or has an unknown option.
    :raises StoreUnavailable: the store does not answer within ``timeout_s``.
    :raises AccessDenied: the store refuses this client.
    :raises Unsupported: a library that this store needs is missing.
    """
    check(url)
    parts = urlsplit(url)
    database = parts.scheme.partition("+")[0]
    match database if database in _DATABASES else parts.scheme:
        case "memory":
            from airflow_hivelock.locks.backends.memory import MemoryBackend

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
                    f"{parts.scheme}:// needs SQLAlchemy: pip install 'airflow-hivelock[{extra}]'"
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
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - set(known):
        there_are = ", ".join(sorted(known))
        raise InvalidRequest(
            f"{shown(parts.geturl())!r}: unknown option {', '.join(sorted(unknown))}. Use one of {there_are}"
        )
    return options


_shared = cache(lambda backend, name: backend())
