"""How a session shows ZooKeeper who it is, and what others may do with the nodes that it makes.

Hive's lock manager sets no ACL (``CuratorFrameworkSingleton``, Hive 2.3 to 4): whoever runs Hive may lock, and unlock,
what another has locked. So nodes below Hive's namespace are everybody's here, too, unless *hive_acl* says who Hive is.
Ours have the ACL of Hive's other nodes (``ZooKeeperHiveHelper``): all for who made them, and to be read by everybody.
"""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, ANYONE_ID_UNSAFE, AUTH_IDS, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest
from airflow_hivelock.locks.hive import kerberos
from airflow_hivelock.locks.url import need, truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AUTH = ("NONE", "DIGEST", "SASL", "KERBEROS")
VERIFY = ("full", "ca", "none")
CREATOR = "creator"
OPEN = "open"
WORLD = "world:anyone"

_DIGEST_ID = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")


class _Secret(str):
    """kazoo logs each request that it sends, at DEBUG."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True)
class Security:
    """What a URL says of it.

    :param auth: ``NONE``; ``DIGEST``, ZooKeeper's own scheme; ``SASL``, that is DIGEST-MD5; ``KERBEROS``, with the
        ticket of this process.
    :param tls: what the server has to show; None for no TLS.
    :param ours: the ACL of our own nodes; *hives*, that of those in Hive's namespace.
    """

    auth: str = "NONE"
    user: str = ""
    password: str = field(default="", repr=False)
    service: str = "zookeeper"
    tls: ssl.SSLContext | None = None
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
        """From a URL's ``user:password`` and options.

        :raises InvalidRequest: what cannot be meant.
        :raises AccessDenied: a file that is not here.
        :raises HiveLockError: the library that *auth* takes is not installed.
        """
        user, _, password = (unquote(part) for part in login.partition(":"))
        auth = auth.upper() or ("DIGEST" if login else "NONE")
        if auth == "DIGEST-MD5":  # a short text in a connection, as SASL, has Airflow warn in each task's log
            auth = "SASL"
        if auth not in AUTH:
            raise InvalidRequest(f"auth={auth!r} of zookeeper://: use one of {', '.join(AUTH)}")
        named = auth in ("DIGEST", "SASL")
        if named != bool(user and password) or (login and not named):
            raise InvalidRequest(
                f"auth={auth} of zookeeper:// takes {'a login and a password' if named else 'no login and no password'}"
            )
        if named and ":" in user:
            raise InvalidRequest("the login for zookeeper:// has a colon in it; ZooKeeper ends it there")
        if auth in ("SASL", "KERBEROS"):
            need("for SASL at ZooKeeper", "puresasl", extra="sasl")
        if auth == "KERBEROS":
            need("for Kerberos at ZooKeeper", "kerberos", extra="kerberos")
        tls = None
        if truth("ssl", ssl):
            tls = _context(ca, cert, key, key_password, verify)
        elif given := [name for name, value in (("ca", ca), ("cert", cert), ("key", key)) if value]:
            raise InvalidRequest(f"{given[0]} of zookeeper:// is for TLS; add ssl=true")
        certain = auth != "NONE" or cert is not None
        ours = _acl("acl", acl or (CREATOR if auth != "NONE" else OPEN), certain)
        hives = tuple(OPEN_ACL_UNSAFE)
        if hive_acl != WORLD:
            hives = _acl("hive_acl", f"{CREATOR},{hive_acl}" if certain else hive_acl, certain)
        return cls(auth, user, password, kerberos_service_name, tls, ours, hives)

    def __str__(self) -> str:
        match self.auth:
            case "NONE":
                return "who shows no credentials"
            case "KERBEROS":
                return "this process's Kerberos principal"
            case _:
                return f"user {self.user!r} ({self.auth})"

    @property
    def closed(self) -> bool:
        """Whether others are kept from our nodes."""
        return tuple(self.ours) != tuple(OPEN_ACL_UNSAFE)

    @property
    def acl_bytes(self) -> int:
        """What the larger of the ACLs takes in a request."""
        return 4 + max(
            sum(12 + len(acl.id.scheme) + len(acl.id.id) for acl in acls) for acls in (self.ours, self.hives)
        )

    def options(self) -> dict[str, Any]:
        """What ``KazooClient`` takes."""
        given: dict[str, Any] = {}
        if self.tls:
            given |= {"use_ssl": True, "handler": _TLS(self.tls)}
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
                given["sasl_options"] = {"mechanism": "GSSAPI", "service": self.service}
        return given

    def ready(self, hosts: Iterable[str]) -> None:
        """:raises AccessDenied: kazoo would only say that it was refused, or die of it."""
        if self.auth == "KERBEROS":
            kerberos.check(self.service, hosts)


ANYBODY = Security()
"""No credentials, no TLS, everything open."""


class _TLS(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's own trusts every authority of the system besides *ca*, and for a four letter word knows no host's name."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self._names: dict[tuple[str, int], str] = {}

    def create_connection(
        self, address: tuple[str, int], hostname: Any = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        name = self._names.setdefault(address, str(hostname))
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
        raise InvalidRequest(f"verify={verify!r} of zookeeper://: use one of {', '.join(VERIFY)}")
    if key and not cert:
        raise InvalidRequest("key of zookeeper:// belongs to a certificate; give that, too (cert)")
    files = "ca"
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            files = "cert, key, key_password"
            context.load_cert_chain(
                cert, key, lambda: key_password or ""
            )  # without one, OpenSSL would ask the terminal
    except (OSError, ValueError) as error:
        raise AccessDenied(
            f"{files} of zookeeper:// cannot be used ({error}): give files of PEM, on this host"
        ) from error
    context.check_hostname = verify == "full"
    context.verify_mode = ssl.CERT_NONE if verify == "none" else ssl.CERT_REQUIRED
    return context


def _acl(option: str, text: str, certain: bool) -> tuple[ACL, ...]:
    """``open``, or who may do all, others reading only: ``creator`` and ``scheme:id``, comma separated."""
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
    if scheme == "digest" and not _DIGEST_ID.fullmatch(name):  # which may be a password
        raise InvalidRequest(f"{option} of zookeeper:// takes a digest as digest:user:base64(sha1(user:password))")
    return Id(scheme, name)
