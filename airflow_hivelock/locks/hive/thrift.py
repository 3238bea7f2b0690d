"""Connections to Hive's Thrift servers: the one place where they are opened."""

from __future__ import annotations

import ssl
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_hivelock.locks.errors import AccessDenied, InvalidRequest, StoreUnavailable
from airflow_hivelock.locks.hive import kerberos
from airflow_hivelock.locks.url import need

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PORT = 9083
"""``hive.metastore.port`` unless the address names another."""

AUTH = ("NONE", "KERBEROS")


@dataclass(frozen=True)
class Metastore:
    """A Hive metastore by its addresses. Each :meth:`client` is a connection of its own: nothing to close or to share.

    :param hosts: servers over one database, as in ``hive.metastore.uris``: the first that can be reached answers.
    :param timeout_s: how long to wait for a connection, and then for each part of an answer.
    :param auth: ``NONE``, or ``KERBEROS`` where ``hive.metastore.sasl.enabled``, with the ticket of this process.
    :param tls: with what ``hive.metastore.use.SSL`` asks for: certificates are checked against *ca*, a file of PEM,
        or else the system's.
    """

    hosts: tuple[tuple[str, int], ...]
    timeout_s: float = 10.0
    auth: str = "NONE"
    kerberos_service_name: str = "hive"
    tls: bool = False
    ca: str | None = None

    def __post_init__(self) -> None:
        if self.auth not in AUTH:
            raise InvalidRequest(f"auth={self.auth!r} of {self}: use one of {', '.join(AUTH)}")
        if not self.timeout_s > 0:
            raise InvalidRequest(f"a time-out of {self.timeout_s!r} s for {self}: give seconds above 0")
        need(f"to ask {self}", "hmsclient", extra="metastore")
        if self.auth == "KERBEROS":
            need(f"for Kerberos at {self}", "thrift_sasl", "puresasl", "kerberos", extra="kerberos")

    @classmethod
    def parse(cls, netloc: str, **options: Any) -> Metastore:
        """*netloc* is ``host[:port][,host…]``.

        :raises InvalidRequest: what cannot be meant.
        :raises HiveLockError: the client library is not installed.
        """
        if "@" in netloc:
            raise InvalidRequest(
                f"the metastore {netloc.rpartition('@')[2]} takes no login and no password; leave them out"
            )
        return cls(tuple(_host(host, netloc) for host in netloc.split(",")), **options)

    def __str__(self) -> str:
        return "the metastore thrift://" + ",".join(f"{host}:{port}" for host, port in self.hosts)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client for a few calls, by one thread. The metastore's own errors pass only where the body lets them.

        :raises StoreUnavailable: it did not answer, or did not say what was asked.
        :raises AccessDenied: it does not let this process in.
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
        """Settings of the metastore's own; None for those that are not set, or not told."""
        from hmsclient.genthrift.hive_metastore.ttypes import ConfigValSecurityException

        found: dict[str, str | None] = dict.fromkeys(wanted)
        with self.client() as client:
            for name in found:
                with suppress(ConfigValSecurityException):
                    found[name] = client.get_config_value(name, "") or None
        return found

    def version(self) -> str:
        """Its Hive's, ``4.0.1``; ``2`` or ``3`` of those before 4, which all call themselves ``3.0``."""
        with self.client() as client:
            told = str(client.getVersion())
        if told != "3.0":
            return told
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
    """Whether the server knows a call that came with Hive 3, and that ``hmsclient`` has not; the last on its connection."""
    from thrift.Thrift import TMessageType

    protocol.writeMessageBegin("get_catalogs", TMessageType.CALL, 0)
    protocol.writeStructBegin("get_catalogs_args")
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    protocol.trans.flush()
    return bool(protocol.readMessageBegin()[1] != TMessageType.EXCEPTION)


_INSERT_ONLY_TABLES = 2
"""A client's word that it knows of these: without it Hive 3 and later tell nothing of one. ``hmsclient`` has no name for it."""


def table(client: Any, database: str, name: str) -> Any | None:
    """What the metastore has of a table; None where that does not exist.

    By ``get_table_req``, which Hive 2.3 to 4 know: ``get_table`` ended with 4.0.1 (HIVE-26537).
    """
    from hmsclient.genthrift.hive_metastore.ttypes import ClientCapabilities, GetTableRequest, NoSuchObjectException

    try:
        return client.get_table_req(GetTableRequest(database, name, ClientCapabilities([_INSERT_ONLY_TABLES]))).table
    except NoSuchObjectException:
        return None


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
    """A Thrift transport, not yet open, as servers of Hive's speak it.

    :param sasl: the mechanism: GSSAPI, which takes *service* and this process's ticket; PLAIN, *user* and *password*.
    """
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TSSLSocket import TSSLSocket
    from thrift.transport.TTransport import TBufferedTransport

    class Secured(TSSLSocket):  # type: ignore[misc]
        def close(self) -> None:
            if self.handle:  # its own takes for granted that the handshake went well
                super().close()

    socket = Secured(host, port, ssl_context=_trust(ca)) if tls else TSocket(host, port)
    socket.setTimeout(timeout_s * 1000)
    if sasl is None:
        return TBufferedTransport(socket)
    if sasl == "GSSAPI":
        kerberos.check(service, [host])
    from thrift_sasl import TSaslClientTransport

    from airflow_hivelock.locks.hive.sasl import Negotiator

    def client() -> Any:
        return Negotiator(host, service, username=user, password=password or "x")  # one that is empty is refused

    return TSaslClientTransport(client, sasl, socket)


def _trust(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise AccessDenied(f"ca={ca!r} cannot be used ({error}): give a file of PEM, on this host") from error


def failure(server: str, error: BaseException) -> StoreUnavailable:
    """What *error*, raised by a client of *server*'s, means."""
    said = str(error).strip() or type(error).__name__
    if (inner := getattr(error, "inner", None)) and str(inner) not in said:
        said = f"{said}: {inner}"
    said = " ".join(said.split())
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return AccessDenied(
            f"{server} has a certificate that is not trusted here: {said}. Give its authority's certificate (ca), and in the URL "
            "the name that it was issued to"
        )
    if "Bad status" in said or "SASL" in said:
        return AccessDenied(
            f"{server} does not let this process in: {said}. Check auth, and login and password or the ticket"
        )
    return StoreUnavailable(
        f"{server} did not answer: {said}; check that it runs, and that auth and ssl are what it asks for"
    )


def _host(text: str, netloc: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise InvalidRequest(f"{netloc!r}: {error}; give its address, as in thrift://host:{PORT}") from error
    if not host:
        raise InvalidRequest(f"{netloc!r} names no metastore; give its address, as in thrift://host:{PORT}")
    return host, port
