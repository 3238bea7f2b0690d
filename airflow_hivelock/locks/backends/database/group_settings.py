"""The row with a group's settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import formats, validate
from airflow_hivelock.locks.errors import StoreCorrupted
from airflow_hivelock.locks.model import Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)


def parse(rows: Sequence[Mapping[Any, Any]]) -> Group | None:
    """The settings in the row of a group; None if there is none.

    :raises StoreCorrupted: another program wrote it.
    :raises UpgradeNeeded: it is for readers of a later format.
    """
    for row in rows:
        try:
            formats.take_text(row["more"], f"group {row['name']!r:.80}")
            validate.texts(row, ("name", "comment"))
            return Group(row["name"], row["leases"], row["weight"], row["comment"])
        except (TypeError, ValueError) as error:
            raise StoreCorrupted(
                f"{dict(row)!r:.200} is not a group of airflow-hivelock ({error}). Another program wrote it"
            ) from error
    return None


def readable(row: Mapping[Any, Any]) -> Group | None:
    """The settings in a row. Those that cannot be read are logged, and are None."""
    try:
        return parse([row])
    except StoreCorrupted as error:
        validate.complain(log, str(error), 0)
        return None
