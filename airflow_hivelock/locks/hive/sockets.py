"""Sockets of Hive's Thrift servers, with a time limit for each call.

Thrift's own sockets limit only each part of a message. A server that sends a byte now and then could occupy a thread
for ever.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from thrift.transport.TSocket import TSocket
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TTransportException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WHOLE = 6
"""How many times longer than each of its parts a call may take. A table has 100,000 partitions at times, and their names
are a few megabytes.
"""

_PIECE = 16_384
"""The most bytes of a request that are sent between two looks at the clock."""

_opening = threading.local()


class Plain(TSocket):  # type: ignore[misc]
    """A socket without TLS.

    It raises the error of a failed connection, but does not log it as Thrift does. A waiter tries for minutes, and logs
    the outage once.
    """

    _part_s = _until = float("inf")
    _one_call = False

    def setTimeout(self, ms: float) -> None:
        super().setTimeout(ms)
        self._part_s = ms / 1000

    def open(self) -> None:
        for module in ("TSocket", "TSSLSocket"):
            logging.getLogger(f"thrift.transport.{module}").addFilter(_of_others)  # a second time it changes nothing
        _opening.here = True
        try:
            super().open()
        finally:
            _opening.here = False

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """Count all messages in the block as one call, because the server decides how many there are."""
        self._begin()
        self._one_call = True
        try:
            yield
        finally:
            self._one_call = False

    def write(self, buff: bytes) -> None:
        """Send *buff*, a whole request. A new call begins with it."""
        if not self._one_call:
            self._begin()
        for start in range(0, len(buff), _PIECE):
            self._limited(super().write, buff[start : start + _PIECE])

    def read(self, sz: int) -> Any:
        return self._limited(super().read, sz)

    def _begin(self) -> None:
        self._until = time.monotonic() + WHOLE * self._part_s

    def _limited(self, call: Callable[[Any], Any], argument: Any) -> Any:
        """Call *call* with the time-out of a part, or with the rest of the call's time if that is shorter."""
        left_s = self._until - time.monotonic()
        if left_s > 0:
            if self.handle is not None:
                self.handle.settimeout(min(self._part_s, left_s))
            try:
                return call(argument)
            except TTransportException:
                if time.monotonic() < self._until:
                    raise
        raise TTransportException(
            TTransportException.TIMED_OUT, f"the answer was not complete within {WHOLE * self._part_s:g} s"
        )


class Secured(Plain, TSSLSocket):  # type: ignore[misc]
    """A socket with TLS."""

    def close(self) -> None:
        if self.handle:  # the base class assumes a successful handshake
            super().close()


def _of_others(_: logging.LogRecord) -> bool:
    """Whether a record of Thrift is not about a connection that this module opens in this thread."""
    return not getattr(_opening, "here", False)
