"""What a statement answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Value = str | int | bool | datetime | None


@dataclass(frozen=True)
class Result:
    """A table, and how Hive prints it.

    :param rows: a value a column; times have a zone.
    :param text: the lines that Hive prints, without the last line's end; None where Hive has no such statement.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...] = ()
    text: str | None = None

    def records(self) -> list[dict[str, str | int | bool | None]]:
        """The rows by column, in plain values: times in ISO 8601."""
        return [
            {
                column: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
                for column, value in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]
