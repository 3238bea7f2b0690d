"""The arguments of triggers, which an earlier or a later version may have written.

Arguments with default values are omitted, so that an earlier version gets nothing that it does not know. A trigger ignores
arguments that it does not know, logs them, and writes them back.
"""

from __future__ import annotations

import inspect
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import formats
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spec import LeaseTerms, LockSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

ALWAYS = ("hivelock_conn_id", "reads", "writes")
"""Arguments that are always written: they show what a trigger is for."""


class Further:
    """The arguments that a trigger does not know, with its stamp."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Store them; nothing is checked."""
        self._arguments, self._logged = dict(arguments), False

    def check(self, log: Any) -> None:
        """Check the stamp, and log the unknown arguments once.

        :raises UpgradeNeeded: the trigger is for readers of a later format.
        :raises InvalidRequest: its stamp cannot be read.
        """
        try:
            unknown = formats.take(dict(self._arguments), (), "this trigger").unknown
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"this trigger has no valid format: {error}") from error
        if unknown and not self._logged:
            self._logged = True
            log.info("Ignoring the arguments %s, which a later version wrote", ", ".join(sorted(unknown)))

    def fields(self) -> dict[str, Any]:
        """The fields to write: as they were read, or this version's stamp."""
        return self._arguments or formats.WRITES.short()


def written(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """*arguments* of a trigger without those that have their default values."""
    defaults = _defaults(cls)
    return {
        name: value for name, value in arguments.items() if name not in defaults or not _same(value, defaults[name])
    }


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


@cache
def _defaults(cls: type) -> dict[str, Any]:
    """The default values of a trigger's arguments, by name."""
    found = asdict(LockSpec([], [])) | asdict(LeaseTerms())
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base):
            parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            found |= {each.name: each.default for each in parameters if each.default is not each.empty}
    return {name: default for name, default in found.items() if name not in ALWAYS}
