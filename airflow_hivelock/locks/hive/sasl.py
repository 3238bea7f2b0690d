"""SASL for Hive's Thrift servers: what thrift_sasl asks of a client, by pure-sasl."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from puresasl import QOP
from puresasl.client import SASLClient
from thrift.transport.TTransport import TTransportException

from airflow_hivelock.locks.hive import kerberos

if TYPE_CHECKING:
    from collections.abc import Iterator


class Negotiator(SASLClient):  # type: ignore[misc]
    """PyHive's own takes *wrap* for *unwrap*, and so fails wherever messages are signed or encrypted: under Hadoop's
    ``hadoop.rpc.protection``, and HiveServer2's ``hive.server2.thrift.sasl.qop``.

    Each method's first value says that it went well: what does not is raised.
    """

    def start(self, mechanism: str) -> tuple[bool, str, bytes]:
        with _failing():
            self.choose_mechanism([mechanism])
            return True, mechanism, self.process()

    def step(self, challenge: bytes) -> tuple[bool, bytes]:
        with _failing():
            return True, self.process(challenge)

    def encode(self, plain: bytes) -> tuple[bool, bytes]:
        """Unchanged where nothing is asked for but who this is; otherwise with its length, 4 bytes, in front."""
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
    except Exception as error:  # pure-sasl's own, and Kerberos's
        raise TTransportException(message=f"SASL: {kerberos.said(error)}") from error
