"""The numbers of formats: what this version writes, reads and refuses. No other module has such numbers.

Records, tickets, rows, passed leases, audit entries and the arguments of triggers each have a :class:`Stamp`: the
format of the data, and the lowest format that a reader needs (``min_reader``). The lock store itself has a stamp. Each
grant checks that stamp in its own transaction.

A reader accepts a stamp if the reader's own :data:`FORMAT` is at least ``min_reader``. It keeps fields that it does not
know, and writes them back. So a later version can add an optional field: it raises :data:`FORMAT` by one, and keeps
:data:`MIN_READER`. It also raises :data:`MIN_READER` if an older reader would misread the change. A change adds a named
field, and never an element to a list.
"""

from __future__ import annotations

import importlib.metadata
import json
import socket
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.invalid import StoreCorrupted, UpgradeNeeded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableMapping

FORMAT = 5
"""The format that this version writes, and the highest that it knows. Raise it in a release that changes a format."""

MIN_READER = 5
"""The lowest format that a reader of this version's data needs."""

OLDEST = 3
"""The lowest format that this version reads."""

FIRST = 5
"""The format of version 0.1.0. Where space matters, data of this format has no stamp."""

_MOST = 1_000_000
dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # json.dumps() makes an encoder each time
"""A stored value as short JSON."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Stamp(NamedTuple):
    """The format of a stored or passed value, with the fields that this version does not know.

    :param format: the format of the version that wrote the value.
    :param min_reader: the lowest format that a reader needs.
    :param unknown: the fields of a later version, by name. This version writes them back.
    """

    format: int = FORMAT
    min_reader: int = MIN_READER
    unknown: Mapping[str, Any] = _NOTHING

    def fields(self) -> dict[str, Any]:
        """The fields to write; ``min_reader`` is omitted if it equals ``format``."""
        lowest = {"min_reader": self.min_reader} if self.min_reader != self.format else {}
        return {"format": self.format, **lowest, **self.unknown}

    def short(self) -> dict[str, Any]:
        """The same as :meth:`fields`, but empty for the first format."""
        return {} if self[:2] == (FIRST, FIRST) and not self.unknown else self.fields()

    def text(self) -> str | None:
        """:meth:`short` as JSON; None if it is empty."""
        return dump(short) if (short := self.short()) else None

    def check(self, what: str) -> None:
        """Check that this version may use the value.

        :param what: the name of the value, for the message.
        :raises UpgradeNeeded: the value needs a reader of a later format.
        :raises StoreCorrupted: the format is older than :data:`OLDEST`.
        """
        if self.min_reader > FORMAT:
            raise refusal(what, self.format, self.min_reader)
        if self.format < OLDEST:
            raise StoreCorrupted(
                f"{what} has format {self.format}. {_here()} reads formats {OLDEST} to {FORMAT}: stop all processes of the "
                "older version, and delete it"
            )

    @property
    def later(self) -> bool:
        """Whether a later version wrote the value."""
        return self.format > FORMAT


WRITES = Stamp()
"""The stamp of what this version writes."""


def take(data: MutableMapping[str, Any], known: Collection[str], what: str) -> Stamp:
    """Remove the stamp from *data*, with all fields that are not *known*, and return it.

    :param what: the name of the value, for the message.
    :raises UpgradeNeeded: see :meth:`Stamp.check`.
    :raises StoreCorrupted: see :meth:`Stamp.check`.
    :raises ValueError: a format is out of range.
    :raises TypeError: a format is not a whole number.
    """
    found = validate.number(data.pop("format", FIRST), "format", _MOST)
    stamp = Stamp(found, validate.number(data.pop("min_reader", found), "min_reader", _MOST))
    stamp.check(what)
    unknown = {name: data.pop(name) for name in [name for name in data if name not in known]}
    return stamp._replace(unknown=unknown) if unknown else stamp


def take_text(text: str | None, what: str) -> Stamp:
    """The inverse of :meth:`Stamp.text`."""
    return take(validate.load(text), (), what) if text else Stamp(FIRST, FIRST)


def refusal(what: str, found: int, min_reader: int, release: str = "") -> UpgradeNeeded:
    """The error for a value that needs a later version than this one.

    :param what: the name of the value: a node, a row, tables, or an argument.
    :param release: the version that wrote it, if that is known.
    """
    by = f" of airflow-hivelock {release}" if release else ""
    return UpgradeNeeded(
        f"{what} has format {found}{by}, for readers of format {min_reader} and later. {_here()} reads formats {OLDEST} to "
        f"{FORMAT}: upgrade airflow-hivelock here too"
    )


def release() -> str:
    """The version of this package; ``""`` if it is not installed."""
    try:
        return importlib.metadata.version("airflow-hivelock")
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def _here() -> str:
    """The version and the host of this process, for messages."""
    return f"airflow-hivelock {release()} on {socket.gethostname()}".replace("  ", " ")
