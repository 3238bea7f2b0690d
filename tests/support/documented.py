"""Tables, and those of the documents that a run of the tests has made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DOCS = Path(__file__).parents[2] / "docs"
END = "<!-- the end of it -->\n"


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown, in whole lines."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def write(page: str, command: str, table: str) -> None:
    """Put *table*, of whole lines, where *page*, below ``docs``, has the mark of *command*, in place of what was there.

    :raises ValueError: it has no such mark.
    """
    begin = f"<!-- {command} -->\n"
    before, mark, rest = (DOCS / page).read_text().partition(begin)
    if not mark:
        raise ValueError(f"docs/{page} has no line {begin!r}")
    _, _, after = rest.partition(END)
    (DOCS / page).write_text(f"{before}{begin}{table}{END}{after}")
