"""The code blocks of README.md and docs/, by how they are run.

The word of a fence names its contents: ``python``, ``sh`` (commands), ``console`` (commands after ``$``, and their
output), ``json``, ``ini``, ``sql``, ``yaml`` (Prometheus' rules, and parts of Kubernetes' objects). ``text`` is a
program's output or a drawing, and is not run. No other word is known.
"""

from __future__ import annotations

import ast
import enum
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

PROJECT = Path(__file__).parents[2]
PAGES = (PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md")))


class Kind(enum.Enum):
    """The kind of a block, which selects its test."""

    DAG = enum.auto()
    JOB = enum.auto()
    NOTEBOOK = enum.auto()
    DBT = enum.auto()
    SCRIPT = enum.auto()
    SHELL = enum.auto()
    JSON = enum.auto()
    INI = enum.auto()
    SQL = enum.auto()
    ALERTS = enum.auto()
    KUBERNETES = enum.auto()
    OUTPUT = enum.auto()
    UNKNOWN = enum.auto()


_KINDS = {
    "sh": Kind.SHELL,
    "console": Kind.SHELL,
    "json": Kind.JSON,
    "ini": Kind.INI,
    "sql": Kind.SQL,
    "text": Kind.OUTPUT,
}


@dataclass(frozen=True)
class Block:
    """A code block.

    :param word: the fence's; empty for none.
    :param line: the first of *text* in its page, from 1.
    """

    page: str
    line: int
    word: str
    text: str

    @property
    def kind(self) -> Kind:
        if self.word == "yaml":
            return Kind.ALERTS if self.text.startswith("groups:") else Kind.KUBERNETES
        return _of_python(self.text) if self.word == "python" else _KINDS.get(self.word, Kind.UNKNOWN)

    @property
    def padded(self) -> str:
        """*text* at its line in the page, so that a traceback shows the page's own line."""
        return "\n" * (self.line - 1) + self.text

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*kinds: Kind) -> list[Block]:
    """The blocks of these kinds, page by page."""
    return [block for block in _all() if block.kind in kinds]


@cache
def _all() -> tuple[Block, ...]:
    return tuple(block for page in PAGES for block in of_page(page))


def of_page(page: Path) -> Iterator[Block]:
    """The code blocks of a page."""
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            first = (token.map or [0])[0] + 1
            fenced = token.type == "fence"
            yield Block(str(page.relative_to(PROJECT)), first + fenced, token.info.strip(), token.content)


@cache
def tokens(page: Path) -> list[Token]:
    """A page, parsed."""
    return MarkdownIt().parse(page.read_text(encoding="utf-8"))


def _of_python(text: str) -> Kind:
    """By what it imports: a part of a DAG imports nothing."""
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    if any(name.partition(".")[0] in ("cosmos", "dbt") for name in imported):
        return Kind.DBT
    if "airflow_hivelock.spark" in imported:
        return Kind.NOTEBOOK if "enable_hive_locks" in text else Kind.JOB
    if not imported or any(re.fullmatch(r"airflow_hivelock|airflow(\..*)?", name) for name in imported):
        return Kind.DAG
    return Kind.SCRIPT
