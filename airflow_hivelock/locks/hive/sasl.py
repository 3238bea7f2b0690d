"""SASL for Hive's Thrift servers: the interface that thrift_sasl expects, implemented with pure-sasl."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from puresasl import QOP
from puresasl.client import SASLClient
from thrift.transport.TTransport import TTransportException

from airflow_hivelock.locks.hive import kerberos
from airflow_hivelock.locks.hive.mechanism import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


class Negotiator(SASLClient):  # type: ignore[misc]
    """A client for one SASL handshake, in place of PyHive's.

    PyHive's client calls ``wrap`` instead of ``unwrap``. So it fails with signed or encrypted messages, which Hadoop's
    ``hadoop.rpc.protection`` and HiveServer2's ``hive.server2.thrift.sasl.qop`` switch on.

    Each method raises a failure, so its first value is always True.
    """

    def start(self, mechanism: str) -> tuple[bool, str, bytes]:
        with _failing():
            self.choose_mechanism([NAME if mechanism == "GSSAPI" else mechanism])
            return True, mechanism, self.process()

    def step(self, challenge: bytes) -> tuple[bool, bytes]:
        with _failing():
            return True, self.process(challenge)

    def encode(self, plain: bytes) -> tuple[bool, bytes]:
        """Return *plain* unchanged after a negotiation of authentication only. Otherwise wrap it, and put its length in
        4 bytes before it."""
        with _failing():
            wrapped: bytes = self.wrap(plain)
            return True, wrapped if self.qop == QOP.AUTH else struct.pack(">I", len(wrapped)) + wrapped

    def decode(self, framed: bytes) -> tuple[bool, bytes]:
        with _failing():
            return True, self.unwrap(framed[4:])


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # errors of pure-sasl and of Kerberos
        raise TTransportException(message=f"SASL: {kerberos.reason_of(error)}") from error
