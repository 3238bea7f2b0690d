"""What a lock of ours says of itself in the columns that the metastore has for text.

::

    user        prod:flights/2013-01-01         the owner, or its first 128 characters
    hostname    worker-3                        where it was asked for; or ~ and the next characters of the owner
    agentInfo   hivelock/1 a=2 s=300 n=5f3a91c2 r=9b1d0e77 insert overwrite …

``a`` attempt, ``s`` the lease's seconds, ``n`` which acquisition asked, ``r`` what for (a digest), and as much of the query
as there is room for. An owner that does not fit ends in ``~`` and a digest. Each column holds 128 bytes; metastores
before 4.0 paste what they are given into their SQL, so that nothing may stand here that ends a string there.
"""

from __future__ import annotations

import hashlib
import re
import socket
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from airflow_hivelock.locks.model import owner_key

COLUMN_CHARS = 128
OWNER_CHARS = 2 * COLUMN_CHARS - 1
"""The longest owner that is kept whole, in characters of its percent-encoded form."""

_SAFE = "_.,:@/=+()[]<>*#|!&$-"
_FORM = re.compile(
    r"hivelock/1 a=(?P<attempt>[0-9]{1,18}) s=(?P<lease_s>[0-9]+(?:\.[0-9]+)?(?:e\+[0-9]{1,2})?) n=(?P<nonce>\w*) r=(?P<named>\w*) "
    r"(?P<query>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Metadata:
    """Who holds or wants a lock of ours.

    :param nonce: tells the acquisitions of one owner apart.
    :param named: :func:`digest` of what the locks were planned from.
    """

    owner: str
    attempt: int
    lease_s: float
    nonce: str
    named: str = ""
    query: str = ""

    @property
    def columns(self) -> dict[str, str]:
        """The text of a lock request, by its fields' names."""
        owner = _fitted(self.owner)
        host = f"~{owner[COLUMN_CHARS:]}" if len(owner) > COLUMN_CHARS else quote(socket.gethostname(), safe=_SAFE)
        info = f"hivelock/1 a={self.attempt} s={self.lease_s:g} n={self.nonce} r={self.named} "
        query = _cut(quote(self.query, safe=_SAFE + " "), COLUMN_CHARS - len(info))
        return {"user": owner[:COLUMN_CHARS], "hostname": host[:COLUMN_CHARS], "agentInfo": info + query}

    @classmethod
    def parse(cls, user: str | None, host: str | None, info: str | None) -> Self | None:
        """The inverse of :attr:`columns`; None for what is not ours."""
        form = _FORM.fullmatch(info or "")
        if form is None or not user:
            return None
        owner = unquote(user + (host[1:] if host and host[0] == "~" else ""))
        return cls(
            owner, int(form["attempt"]), float(form["lease_s"]), form["nonce"], form["named"], unquote(form["query"])
        )


def known_as(owner: str) -> str:
    """What is read back of *owner*: the same, unless it is too long."""
    return unquote(_fitted(owner))


def digest(text: str) -> str:
    """Eight characters that tell one text from another; none for none."""
    return hashlib.sha256(text.encode()).hexdigest()[:8] if text else ""


def _fitted(owner: str) -> str:
    encoded = quote(owner, safe=_SAFE)
    if len(encoded) <= OWNER_CHARS:
        return encoded
    mark = f"~{owner_key(owner)}"
    return _cut(encoded, OWNER_CHARS - len(mark)) + mark


def _cut(encoded: str, chars: int) -> str:
    return re.sub(r"%.?$", "", encoded[: max(0, chars)])
