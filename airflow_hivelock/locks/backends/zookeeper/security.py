"""How a session authenticates to ZooKeeper, and which access others get to the nodes that it makes.

Hive's lock manager sets no ACL (``CuratorFrameworkSingleton``, Hive 2.3 to 4). Every user of Hive may lock, and unlock
the locks of others. So nodes below Hive's namespace are open here as well, unless *hive_acl* names Hive's identity.
This package's own nodes have the ACL of Hive's other nodes (``ZooKeeperHiveHelper``): full access for their creator,
reading for all.
"""

from __future__ import annotations

import logging
import re
import selectors
import socket
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.security import ACL, ANYONE_ID_UNSAFE, AUTH_IDS, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest
from airflow_hivelock.locks.hive import kerberos
from airflow_hivelock.locks.url import need, tls, truth

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Sequence

log = logging.getLogger(__name__)

AUTH = ("NONE", "DIGEST", "SASL", "KERBEROS")
VERIFY = ("full", "ca", "none")
CREATOR = "creator"
OPEN = "open"
WORLD = "world:anyone"

_DIGEST_ID = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")


class _Secret(str):
    """A text that hides itself, because kazoo logs each request that it sends, at DEBUG."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True)
class Security:
    """The security options of a URL.

    :param auth: ``NONE``; ``DIGEST``, ZooKeeper's own scheme; ``SASL``, which means DIGEST-MD5; ``KERBEROS``, with the
        ticket of this process.
    :param tls: reads the certificates, and returns the checks of the server's; None: no TLS.
    :param ours: the ACL of this package's own nodes; *hives*, that of the nodes in Hive's namespace.
    """

    auth: str = "NONE"
    user: str = ""
    password: str = field(default="", repr=False)
    service: str = "zookeeper"
    tls: Callable[[], ssl.SSLContext] | None = None
    ours: Sequence[ACL] = tuple(OPEN_ACL_UNSAFE)
    hives: Sequence[ACL] = tuple(OPEN_ACL_UNSAFE)

    @classmethod
    def of(
        cls,
        login: str = "",
        *,
        auth: str = "",
        kerberos_service_name: str = "zookeeper",
        ssl: str = "false",
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        key_password: str | None = None,
        verify: str = VERIFY[0],
        acl: str = "",
        hive_acl: str = WORLD,
    ) -> Self:
        """Read the options from a URL's ``user:password`` and query.

        :raises InvalidRequest: an option is invalid.
        :raises AccessDenied: a file is missing on this host.
        :raises HiveLockError: the library that *auth* needs is not installed.
        """
        user, _, password = (unquote(part) for part in login.partition(":"))
        auth = auth.upper() or ("DIGEST" if login else "NONE")
        if auth == "DIGEST-MD5":  # Airflow warns in each task's log about a text as short as SASL in a connection
            auth = "SASL"
        if auth not in AUTH:
            raise InvalidRequest(f"auth={auth!r} of zookeeper:// is unknown. Use one of {', '.join(AUTH)}")
        named = auth in ("DIGEST", "SASL")
        if named != bool(user and password) or (login and not named):
            raise InvalidRequest(
                f"auth={auth} of zookeeper:// takes {'a login and a password' if named else 'no login and no password'}"
            )
        if named and ":" in user:
            raise InvalidRequest(
                "the login for zookeeper:// contains a colon, and ZooKeeper would cut it there. Use another login"
            )
        if auth == "SASL":
            need("for SASL at ZooKeeper", "puresasl", extra="sasl")
        if auth == "KERBEROS":
            need("for Kerberos at ZooKeeper", "puresasl", "gssapi", extra="kerberos")
        reads = None
        if truth("ssl", ssl):
            reads = partial(_context, ca, cert, key, key_password, verify)
            reads()  # files that cannot be used are refused now
        elif given := [name for name, value in (("ca", ca), ("cert", cert), ("key", key)) if value]:
            raise InvalidRequest(f"{given[0]} of zookeeper:// is for TLS. Add ssl=true")
        certain = auth != "NONE" or cert is not None
        ours = _acl("acl", acl or (CREATOR if auth != "NONE" else OPEN), certain)
        hives = tuple(OPEN_ACL_UNSAFE)
        if hive_acl != WORLD:
            hives = _acl("hive_acl", f"{CREATOR},{hive_acl}" if certain else hive_acl, certain)
        return cls(auth, user, password, kerberos_service_name, reads, ours, hives)

    def __str__(self) -> str:
        match self.auth:
            case "NONE":
                return "a client without credentials"
            case "KERBEROS":
                return "this process's Kerberos principal"
            case _:
                return f"user {self.user!r} ({self.auth})"

    @property
    def closed(self) -> bool:
        """Whether other clients have no write access to this package's nodes."""
        return tuple(self.ours) != tuple(OPEN_ACL_UNSAFE)

    @property
    def acl_bytes(self) -> int:
        """How many bytes the larger of the ACLs takes in a request."""
        return 4 + max(
            sum(12 + len(acl.id.scheme) + len(acl.id.id) for acl in acls) for acls in (self.ours, self.hives)
        )

    def options(self) -> dict[str, Any]:
        """The arguments for ``KazooClient``."""
        given: dict[str, Any] = {"handler": _Handler()}
        if self.tls:
            given = {"use_ssl": True, "handler": _TLS(self.tls)}
        match self.auth:
            case "DIGEST":
                given["auth_data"] = {("digest", _Secret(f"{self.user}:{self.password}"))}
            case "SASL":
                given["sasl_options"] = {
                    "mechanism": "DIGEST-MD5",
                    "username": self.user,
                    "password": _Secret(self.password),
                }
            case "KERBEROS":
                from airflow_hivelock.locks.hive.mechanism import NAME

                given["sasl_options"] = {"mechanism": NAME, "service": self.service}
        return given

    def ready(self, hosts: Iterable[str]) -> None:
        """Check the credentials before kazoo uses them, because kazoo would hide the reason, or its thread would end.

        :raises AccessDenied: they cannot be used.
        """
        if self.auth == "KERBEROS":
            kerberos.check(self.service, hosts)


ANYBODY = Security()
"""No credentials, no TLS, everything open."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """A handler for kazoo. For each wait kazoo's own makes a new epoll object, by several system calls. poll needs one."""

    _SELECTORS = SimpleNamespace(
        DefaultSelector=selectors.PollSelector, EVENT_READ=selectors.EVENT_READ, EVENT_WRITE=selectors.EVENT_WRITE
    )

    def select(self, *args: Any, **kwargs: Any) -> Any:
        return selector_select(*args, **kwargs, selectors_module=self._SELECTORS)


class _TLS(_Handler):
    """A handler for TLS. kazoo's own also trusts every authority of the system, and does not check the host of a four
    letter word.

    :param reads: reads the certificates. Each connection calls it, because certificates are replaced while processes run.
    """

    def __init__(self, reads: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._reads = reads
        self._context = reads()
        self._names: dict[tuple[str, int], str] = {}

    def create_connection(
        self, address: tuple[str, int], hostname: Any = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        name = self._names.setdefault(address, str(hostname))
        try:
            self._context = self._reads()
        except AccessDenied as error:  # perhaps the files are being replaced right now
            log.warning("The session keeps its earlier TLS files: %s", error)
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._context.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise


def _context(
    ca: str | None, cert: str | None, key: str | None, key_password: str | None, verify: str
) -> ssl.SSLContext:
    if verify not in VERIFY:
        raise InvalidRequest(f"verify={verify!r} of zookeeper:// is unknown. Use one of {', '.join(VERIFY)}")
    if key and not cert:
        raise InvalidRequest("key of zookeeper:// needs its certificate. Give that too (cert)")
    return tls(
        ca,
        cert,
        key,
        key_password,
        verify=verify,
        options=("ca of zookeeper://", "cert, key, key_password of zookeeper://"),
    )


def _acl(option: str, text: str, certain: bool) -> tuple[ACL, ...]:
    """Parse an ACL: ``open``, or identities with full access, ``creator`` and ``scheme:id``, comma separated. Others
    may read."""
    if text == OPEN:
        return tuple(OPEN_ACL_UNSAFE)
    ids = [_id(option, entry.strip(), certain) for entry in text.split(",")]
    if ANYONE_ID_UNSAFE in ids:
        return tuple(OPEN_ACL_UNSAFE)
    return (*READ_ACL_UNSAFE, *(ACL(Permissions.ALL, each) for each in dict.fromkeys(ids)))


def _id(option: str, entry: str, certain: bool) -> Id:
    scheme, _, name = entry.partition(":")
    if entry == CREATOR:
        if not certain:
            raise InvalidRequest(
                f"{option}={CREATOR} of zookeeper:// needs a login, auth=KERBEROS or a certificate (cert)"
            )
        return AUTH_IDS
    if not scheme or not name or not entry.isprintable():
        raise InvalidRequest(f"{option} of zookeeper:// lists {CREATOR} and ids, as in sasl:hive,ip:10.0.0.0/8")
    if scheme == "digest" and not _DIGEST_ID.fullmatch(name):  # the text may be a password, so it is not shown
        raise InvalidRequest(f"{option} of zookeeper:// takes a digest as digest:user:base64(sha1(user:password))")
    return Id(scheme, name)
