"""Lists Hive's locks through HiveServer2, in SQL: ``SHOW LOCKS EXTENDED``.

It takes none, because Hive's ``LOCK TABLE`` has no owner after its grant. ``UNLOCK TABLE`` frees *every* lock on the
object, of any client, so a release would free the locks of others. ``DbTxnManager`` refuses both statements.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import unquote

from airflow_hivelock.locks import rules
from airflow_hivelock.locks.backend import Backend, Capabilities
from airflow_hivelock.locks.backends.hiveserver2 import listing
from airflow_hivelock.locks.errors import InvalidRequest, StoreUnavailable, Unsupported
from airflow_hivelock.locks.hive import sql
from airflow_hivelock.locks.hive.properties import HIVESERVER2_PORT, IN_METASTORE, TXN_MANAGER
from airflow_hivelock.locks.hive.thrift import failure, transport
from airflow_hivelock.locks.model import Holder, Lock, LockObject, Waiter
from airflow_hivelock.locks.url import need, seconds, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from urllib.parse import SplitResult

    from airflow_hivelock.locks.model import Lease, LockRequest, Tenure

AUTH = ("NONE", "NOSASL", "LDAP", "KERBEROS")


@dataclass(frozen=True)
class Address:
    """The address of HiveServer2, and the login.

    :param auth: its ``hive.server2.authentication``; a password belongs to LDAP.
    """

    host: str
    port: int = HIVESERVER2_PORT
    database: str = "default"
    user: str = "airflow_hivelock"
    password: str | None = field(default=None, repr=False)
    auth: str = "NONE"
    kerberos_service_name: str = "hive"
    timeout_s: float = 60.0
    tls: bool = False
    ca: str | None = None

    def __post_init__(self) -> None:
        LockObject(self.database)  # it becomes part of a statement
        if self.auth not in AUTH:
            raise InvalidRequest(f"auth={self.auth!r} of {self} is unknown. Use one of {', '.join(AUTH)}")
        if (self.password is not None) != (self.auth == "LDAP"):
            raise InvalidRequest(f"{self}: give a password only with auth=LDAP, and always with it")
        need(f"to ask {self}", "pyhive.hive", "thrift_sasl", "puresasl", extra="hiveserver2")

    def __str__(self) -> str:
        return f"HiveServer2 {self.host}:{self.port}"


class HiveServer2Backend(Backend):
    """See :class:`~airflow_hivelock.locks.backend.Backend`: calls that list work, calls that acquire raise Unsupported.

    :param recheck_s: how often the caller of :meth:`watch` has to poll, in seconds.
    :param configuration: Hive's settings for the sessions.
    """

    capabilities = Capabilities(
        acquires=False,
        seen_by_hive=False,
        fair=False,
        prioritized=False,
        invites=False,
        withdraws=False,
        limits=False,
        watched=False,
        remembers=False,
        parts=False,
        audits=False,
    )
    settings_of = "HiveServer2's configuration"

    def __init__(
        self, address: Address, *, recheck_s: float = 30.0, configuration: dict[str, str] | None = None
    ) -> None:
        self.address = address
        self.recheck_s = recheck_s
        self._configuration = configuration
        txn_manager = self.settings([TXN_MANAGER])[TXN_MANAGER] or ""
        self.capabilities = replace(self.capabilities, parents=not txn_manager.endswith(IN_METASTORE))

    @classmethod
    def connect(
        cls,
        url: SplitResult,
        *,
        recheck_s: str = "30",
        answer_s: str = "60",
        auth: str = "",
        ssl: str = "false",
        **given: str,
    ) -> Self:
        """Connect to HiveServer2.

        :param url: ``hiveserver2://[user[:password]@]host[:10000][/database]``
        :param auth: its ``hive.server2.authentication``; default ``LDAP`` with a password, ``NONE`` without.
        :raises InvalidRequest: before anything is connected.
        :raises StoreUnavailable: the server does not answer.
        """
        try:
            port = url.port or HIVESERVER2_PORT
        except ValueError as error:
            raise InvalidRequest(
                f"{url.netloc.rpartition('@')[2]!r}: {error}; use hiveserver2://host:{HIVESERVER2_PORT}"
            ) from error
        if not url.hostname:
            raise InvalidRequest(f"a HiveServer2 URL needs a host: hiveserver2://host:{HIVESERVER2_PORT}")
        address = Address(
            url.hostname,
            port,
            unquote(url.path.strip("/")) or Address.database,
            unquote(url.username or "") or Address.user,
            unquote(url.password) if url.password is not None else None,
            auth.upper() or ("NONE" if url.password is None else "LDAP"),
            timeout_s=seconds("answer_s", answer_s),
            tls=truth("ssl", ssl),
            **given,
        )
        return cls(address, recheck_s=seconds("recheck_s", recheck_s))

    def show(self, target: LockObject | None = None) -> list[Holder]:
        held = (holder for holder, waiting in self._locks() if not waiting)
        return rules.as_shown(holder for holder in held if rules.concern([Lock(holder.object, holder.mode)], target))

    def waiters(self, target: LockObject | None = None) -> list[Waiter]:
        """The waiters of the metastore's lock manager. Waiters of ZooKeeper's are in no list."""
        listed = self._locks()
        asked = {holder.token for holder, waiting in listed if waiting and holder.token}
        return [
            waiter
            for number in sorted(asked)
            for waiter in [listing.waiter(number, listed)]
            if rules.concern(waiter.locks, target)
        ]

    def watch(self, targets: Sequence[LockObject], wake: Callable[[], None]) -> float:
        return self.recheck_s

    def now(self) -> datetime:
        """The clock of HiveServer2's host."""
        return datetime.fromtimestamp(int(self._ask("SELECT unix_timestamp()")[0][0]), UTC)

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """Hive's settings in a session of this client; None for those that are not set."""
        with self._cursor() as cursor:
            return {name: sql.setting(cursor, name) for name in wanted}

    def begin(self, request: LockRequest, wake: Callable[[], None]) -> NoReturn:
        raise Unsupported(
            f"{request.owner}: {self.address} can only show locks, not take them, because Hive's UNLOCK TABLE frees all locks "
            "on its object. Take locks in zookeeper:// or metastore://, where this Hive takes its own"
        )

    def force_release(self, lease_id: str, *_: object, **__: object) -> NoReturn:
        raise Unsupported(f"lease {lease_id}: {self.address} has no leases. It can only show locks")

    check_token = force_record = force_release

    def release(self, lease: Lease, *_: object, **__: object) -> NoReturn:
        self.force_release(lease.id)

    renew = verify = start_work = record_work = release_part = release

    def history(self, target: LockObject | None = None, *, most: int | None = None) -> list[Tenure]:
        return []

    def leases(self) -> list[Lease]:
        return []

    def _locks(self) -> list[tuple[Holder, bool]]:
        """All locks, each with whether it is waited for, in the order of Hive's list."""
        return list(listing.parse(self._ask("SHOW LOCKS EXTENDED"), lambda: self._escapes_again))

    @cached_property
    def _escapes_again(self) -> bool:
        """Whether Hive's metastore escapes the names of partitions again: Hive 4 lists ``dt=%3A`` as ``dt=%253A``."""
        version = str(self._ask("SELECT version()")[0][0])
        return not version.startswith(("1.", "2.", "3."))

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self._cursor() as cursor:
            return sql.rows(cursor, statement)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        from pyhive import exc, hive
        from thrift.Thrift import TException

        at = self.address
        try:
            wire = transport(
                at.host,
                at.port,
                at.timeout_s,
                sasl=_SASL[at.auth],
                tls=at.tls,
                ca=at.ca,
                service=at.kerberos_service_name,
                user=at.user,
                password=at.password,
            )
            connection = hive.connect(
                thrift_transport=wire, username=at.user, database=at.database, configuration=self._configuration
            )
            with closing(connection), closing(connection.cursor()) as cursor:
                yield cursor
        except exc.Error as error:
            reason_of = sql.reason_of(error)
            if "LockManager not specified" in reason_of:
                raise Unsupported(f"{at} takes no locks: its hive.support.concurrency is false") from error
            raise StoreUnavailable(f"{at} refused: {reason_of}") from error
        except (TException, OSError, EOFError, AssertionError) as error:
            raise failure(str(at), error) from error


_SASL = {"NOSASL": None, "NONE": "PLAIN", "LDAP": "PLAIN", "KERBEROS": "GSSAPI"}
