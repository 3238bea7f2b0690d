"""Kerberos for pure-sasl (RFC 4752), over GSSAPI. pure-sasl's own class needs a library that is no longer
maintained."""

from __future__ import annotations

import struct
from typing import Any

from puresasl import QOP, SASLProtocolException, mechanisms

from airflow_hivelock.locks.hive import kerberos

NAME = "airflow_hivelock:GSSAPI"
"""The name of this mechanism in pure-sasl's registry. Other packages in the process may use pure-sasl's own
"GSSAPI"."""


class Gssapi(mechanisms.Mechanism):  # type: ignore[misc]
    """Authenticates one connection, and then wraps its messages."""

    name = "GSSAPI"
    score = 100
    qops = QOP.all
    allows_anonymous = False
    uses_plaintext = False
    active_safe = True

    def __init__(self, sasl: Any, **_: Any) -> None:
        super().__init__(sasl)
        self._context = kerberos.context(sasl.service, sasl.host)

    def process(self, challenge: bytes | None = None) -> bytes:
        """Return the next message for the server: Kerberos's messages first, and then the choice of a protection."""
        if not self._context.complete:
            return self._context.step(challenge) or b""
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4:
            raise SASLProtocolException(f"the server offers its protections in {len(offer)} bytes instead of 4")
        (word,) = struct.unpack("!I", offer)
        protections = self.sasl.qops & set(QOP.names_from_bitmask(word >> 24))
        if not protections:
            raise SASLProtocolException("the server offers no protection that this client supports")
        self.qop = max(protections, key=QOP.flag_from_name)  # the strongest
        self.max_buffer = min(self.sasl.max_buffer, word & 0xFFFFFF)
        choice = struct.pack("!I", QOP.flag_from_name(self.qop) << 24 | self.max_buffer)
        who = self.sasl.authorization_id or str(self._context.initiator_name)
        answer: bytes = self._context.wrap(choice + who.encode(), False).message
        self.complete = True
        return answer

    def wrap(self, outgoing: bytes) -> bytes:
        if self.qop == QOP.AUTH:
            return outgoing
        wrapped: bytes = self._context.wrap(outgoing, self.qop == QOP.AUTH_CONF).message
        return wrapped

    def unwrap(self, incoming: bytes) -> bytes:
        if self.qop == QOP.AUTH:
            return incoming
        found = self._context.unwrap(incoming)
        if self.qop == QOP.AUTH_CONF and not found.encrypted:
            raise SASLProtocolException("the server has sent a message in clear, although it agreed to encrypt them")
        plain: bytes = found.message
        return plain


mechanisms.mechanisms[NAME] = Gssapi
