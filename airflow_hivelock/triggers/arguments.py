"""The arguments of triggers, which an earlier or a later version can have written.

Arguments with default values are not written, so that an earlier version gets no unknown arguments. A trigger ignores
unknown arguments, logs them, and writes them back.
"""

from __future__ import annotations

import inspect
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks import formats
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spec import LeaseTerms, LockSpec
from airflow_hivelock.waiting.rounds import FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping

ALWAYS = ("hivelock_conn_id", "reads", "writes")
"""Arguments that are always written, because they show a trigger's purpose."""


class Further:
    """The unknown arguments of a trigger, with the stamp of their format."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Store the arguments without a check."""
        self._arguments, self._logged = dict(arguments), False

    def check(self, log: Any) -> None:
        """Check the stamp, and log the unknown arguments once.

        :raises UpgradeNeeded: this version is too old for the trigger's format.
        :raises InvalidRequest: the stamp is invalid.
        """
        try:
            unknown = formats.take(dict(self._arguments), (), "this trigger").unknown
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"this trigger has no valid format: {error}") from error
        if unknown and not self._logged:
            self._logged = True
            log.info("Ignoring the arguments %s, which a later version wrote", ", ".join(sorted(unknown)))

    def fields(self) -> dict[str, Any]:
        """The fields to write: the arguments that were read, or this version's stamp."""
        return self._arguments or formats.WRITES.short()


def written(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The *arguments* of a trigger that differ from their default values."""
    defaults = _defaults(cls)
    return {
        name: value for name, value in arguments.items() if name not in defaults or not _same(value, defaults[name])
    }


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


@cache
def _defaults(cls: type) -> dict[str, Any]:
    """The default values of a trigger's arguments, by name."""
    found = asdict(LockSpec([], [])) | asdict(LeaseTerms()) | FIRST.arguments()
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base):
            parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            found |= {each.name: each.default for each in parameters if each.default is not each.empty}
    return {name: default for name, default in found.items() if name not in ALWAYS}
