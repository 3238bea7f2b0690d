"""Whether a server of Spark Connect may have cached data.

Spark fills a cache from all partitions, even for a query of one. All sessions of a server share its caches.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Caches:
    """The caches that the sessions of this process have created on one server.

    :ivar filled: there may be one.
    """

    def __init__(self) -> None:
        self.filled = False
        self._guard = threading.Lock()
        self._begun = self._running = 0

    @contextmanager
    def creating(self) -> Iterator[None]:
        """The body creates a cache."""
        with self._guard:
            self.filled = True
            self._begun += 1
            self._running += 1
        try:
            yield
        finally:
            with self._guard:
                self._running -= 1

    @contextmanager
    def clearing(self) -> Iterator[None]:
        """The body clears all caches of the server."""
        with self._guard:
            alone, begun = not self._running, self._begun
        yield
        with self._guard:
            if alone and begun == self._begun:  # else another thread may have created a cache after the clearing
                self.filled = False


_of: dict[str, Caches] = {}


def caches_of(host: str) -> Caches:
    """The caches of the server on *host*."""
    return _of.setdefault(host, Caches())
