"""Connections to Hive's Thrift servers. No other module opens one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_hivelock.locks import url
from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.hive import kerberos
from airflow_hivelock.locks.hive.properties import METASTORE_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

AUTH = ("NONE", "KERBEROS")


@dataclass(frozen=True)
class Metastore:
    """The address of a Hive metastore, and how to connect. Each :meth:`client` opens and closes its own connection.

    :param hosts: the servers of one metastore, as in ``hive.metastore.uris``. The first reachable server is used.
    :param timeout_s: the longest wait for a connection, and then for each part of an answer, in seconds. A whole answer
        may take six times as long.
    :param auth: ``NONE``; or ``KERBEROS``, for ``hive.metastore.sasl.enabled``, with the ticket of this process.
    :param tls: the metastore uses TLS (``hive.metastore.use.SSL``).
    :param ca: a PEM file with the trusted authorities. The default is the system's.
    """

    hosts: tuple[tuple[str, int], ...]
    timeout_s: float = 10.0
    auth: str = "NONE"
    kerberos_service_name: str = "hive"
    tls: bool = False
    ca: str | None = None

    def __post_init__(self) -> None:
        if self.auth not in AUTH:
            raise InvalidRequest(f"auth={self.auth!r} of {self} is unknown. Use one of {', '.join(AUTH)}")
        if not self.timeout_s > 0:
            raise InvalidRequest(f"the time-out {self.timeout_s!r} s of {self} is invalid. Give seconds above 0")
        url.need(f"to ask {self}", "hmsclient", extra="metastore")
        if self.auth == "KERBEROS":
            url.need(f"for Kerberos at {self}", "thrift_sasl", "puresasl", "gssapi", extra="kerberos")

    @classmethod
    def parse(cls, netloc: str, *, auth: str = "NONE", ssl: str = "false", **options: Any) -> Metastore:
        """Parse *netloc*, ``host[:port][,host…]``, with the options of a URL.

        :raises InvalidRequest: *netloc* is invalid.
        :raises HiveLockError: the client library is not installed.
        """
        if "@" in netloc:
            raise InvalidRequest(
                f"the metastore {netloc.rpartition('@')[2]} takes no login and no password. Remove them"
            )
        hosts = tuple(_host(host, netloc) for host in netloc.split(","))
        return cls(hosts, auth=auth.upper(), tls=url.truth("ssl", ssl), **options)

    def __str__(self) -> str:
        return "the metastore thrift://" + ",".join(f"{host}:{port}" for host, port in self.hosts)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield a client for a few calls in one thread.

        :raises StoreUnavailable: the metastore did not answer, or its answer does not fit the call.
        :raises AccessDenied: the metastore refuses this process.
        """
        from hmsclient import HMSClient

        with self._protocol() as protocol:
            yield HMSClient(iprot=protocol)

    @contextmanager
    def _protocol(self) -> Iterator[Any]:
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TException

        try:
            transport = self._open()
            try:
                yield TBinaryProtocol(transport)
            finally:
                transport.close()
        except (TException, OSError, EOFError, UnicodeDecodeError) as error:
            raise failure(str(self), error) from error

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """Return the metastore's settings by name. None: it is not set, or the metastore does not report it."""
        from hmsclient.genthrift.hive_metastore.ttypes import ConfigValSecurityException

        found: dict[str, str | None] = dict.fromkeys(wanted)
        with self.client() as client:
            for name in found:
                with suppress(ConfigValSecurityException):
                    found[name] = client.get_config_value(name, "") or None
        return found

    def version(self) -> str:
        """Return the version of Hive, as in ``4.0.1``. Hive 2 and 3 both report ``3.0``: return ``2`` or ``3``."""
        with self.client() as client:
            reported = str(client.getVersion())
        if reported != "3.0":
            return reported
        with self._protocol() as protocol:
            return "3" if _has_catalogs(protocol) else "2"

    def _open(self) -> Any:
        from thrift.transport.TTransport import TTransportException

        for host, port in self.hosts[:-1]:
            try:
                return self._connected(host, port)
            except (TTransportException, OSError):
                continue
        return self._connected(*self.hosts[-1])

    def _connected(self, host: str, port: int) -> Any:
        sasl = "GSSAPI" if self.auth == "KERBEROS" else None
        service = self.kerberos_service_name
        opened = transport(host, port, self.timeout_s, sasl=sasl, service=service, tls=self.tls, ca=self.ca)
        try:
            opened.open()
        except BaseException:
            opened.close()
            raise
        return opened


def _has_catalogs(protocol: Any) -> bool:
    """Whether the server has the call ``get_catalogs`` of Hive 3. ``hmsclient`` does not have it.

    :param protocol: a connection for this call only.
    """
    from thrift.Thrift import TMessageType

    protocol.writeMessageBegin("get_catalogs", TMessageType.CALL, 0)
    protocol.writeStructBegin("get_catalogs_args")
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    protocol.trans.flush()
    return bool(protocol.readMessageBegin()[1] != TMessageType.EXCEPTION)


_INSERT_ONLY_TABLES = 2
"""A client capability. ``hmsclient`` does not have it. Without it, Hive 3 and later return no insert-only table."""


def table(client: Any, database: str, name: str) -> Any | None:
    """Return the metastore's table *name*. None: it does not exist.

    ``get_table_req`` works with Hive 2.3 to 4. Hive 4.0.1 removed ``get_table`` (HIVE-26537).
    """
    from hmsclient.genthrift.hive_metastore.ttypes import ClientCapabilities, GetTableRequest, NoSuchObjectException

    try:
        return client.get_table_req(GetTableRequest(database, name, ClientCapabilities([_INSERT_ONLY_TABLES]))).table
    except NoSuchObjectException:
        return None


LOCK_CATALOG, LISTED_CATALOG = 9, 6
"""The numbers of the fields with a catalog: in the component of a lock, and in a request for a list of locks
(HIVE-29244)."""


def in_catalog(struct: Any, field: int, catalog: str) -> Any:
    """Make *struct* also send its catalog, and return it.

    Hive 4.3 has this field, but ``hmsclient`` does not. A server that does not know the field skips it.
    """
    write = struct.write
    struct.write = lambda protocol: write(_WithCatalog(protocol, field, catalog))
    return struct


class _WithCatalog:
    """A Thrift protocol that writes the field ``catName`` at the end of a struct."""

    _fast_encode = None  # a fast encoder would omit the field

    def __init__(self, protocol: Any, field: int, catalog: str) -> None:
        self._protocol, self._field, self._catalog = protocol, field, catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    def writeFieldStop(self) -> None:
        from thrift.Thrift import TType

        self._protocol.writeFieldBegin("catName", TType.STRING, self._field)
        self._protocol.writeString(self._catalog)
        self._protocol.writeFieldEnd()
        self._protocol.writeFieldStop()


def transport(
    host: str,
    port: int,
    timeout_s: float,
    *,
    sasl: str | None = None,
    service: str = "hive",
    user: str | None = None,
    password: str | None = None,
    tls: bool = False,
    ca: str | None = None,
) -> Any:
    """Return a Thrift transport for Hive's servers. It is not open yet.

    :param timeout_s: the longest wait for a connection, and then for each part of a message, in seconds. A call, and the
        negotiation of SASL, may take :data:`.sockets.WHOLE` times as long.
    :param sasl: the mechanism. GSSAPI uses *service* and the ticket of this process. PLAIN uses *user* and *password*.
        None: no SASL.
    """
    from thrift.transport.TTransport import TBufferedTransport

    from airflow_hivelock.locks.hive.sockets import Plain, Secured

    socket = Secured(host, port, ssl_context=url.tls(ca)) if tls else Plain(host, port)
    socket.setTimeout(timeout_s * 1000)
    if sasl is None:
        return TBufferedTransport(socket)
    if sasl == "GSSAPI":
        kerberos.check(service, [host])
    from thrift_sasl import TSaslClientTransport

    from airflow_hivelock.locks.hive.sasl import Negotiator

    def client() -> Any:
        return Negotiator(host, service, username=user, password=password or "x")  # pure-sasl refuses an empty one

    class Negotiated(TSaslClientTransport):  # type: ignore[misc]
        def open(self) -> None:
            with socket.one_call():
                super().open()

    return Negotiated(client, sasl, socket)


def failure(server: str, error: BaseException) -> StoreUnavailable:
    """Convert an *error* of a connection to *server* to an error of this package."""
    reason = str(error).strip() or type(error).__name__
    if (inner := getattr(error, "inner", None)) and str(inner) not in reason:
        reason = f"{reason}: {inner}"
    reason = " ".join(reason.split())
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return AccessDenied(
            f"{server} has a certificate that is not trusted here: {reason}. Set ca to the certificate of its authority. In the "
            "URL, use the name that the certificate was issued to"
        )
    if "Bad status" in reason or "SASL" in reason:
        return AccessDenied(
            f"{server} refuses this process: {reason}. Check auth, and the login and password or the Kerberos ticket"
        )
    return StoreUnavailable(
        f"{server} did not answer: {reason}. Check that it runs, and that auth and ssl are as it expects"
    )


def _host(text: str, netloc: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port or METASTORE_PORT
    except ValueError as error:
        raise InvalidRequest(
            f"{netloc!r}: {error}. Give the metastore's address, as in thrift://host:{METASTORE_PORT}"
        ) from error
    if not host:
        raise InvalidRequest(f"{netloc!r} names no metastore. Give its address, as in thrift://host:{METASTORE_PORT}")
    return host, port
