"""From a docstring to Markdown, for the forms that this project uses: roles, literals, fields, simple tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import cleandoc
from itertools import zip_longest
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLE = re.compile(r":\w+:`(?:~[\w.]*\.|\.?)([\w.()]+)`")
_FIELD = re.compile(r"^:(param|ivar|raises|return)\b ?([\w*]*):\s*", re.MULTILINE)
_RULE = re.compile(r"^=+( +=+)+$")


@dataclass(frozen=True)
class Doc:
    """A docstring, taken apart. All of it is Markdown.

    :param params: what it says of each argument.
    :param raises: each error and when.
    """

    text: str
    params: dict[str, str]
    raises: tuple[tuple[str, str], ...]
    returns: str


def parse(docstring: str | None) -> Doc:
    """A docstring's text and fields; what follows its fields is text again."""
    doc = cleandoc(docstring or "")
    texts, params, raises, returns = [], {}, [], ""
    for kind, name, body in _fields(doc):
        match kind:
            case "":
                texts.append(blocks(body))
            case "param" | "ivar":
                params[name] = line(body)
            case "raises":
                raises.append((name, line(body)))
            case _:
                returns = line(body)
    return Doc("\n\n".join(filter(None, texts)), params, tuple(raises), returns)


def _fields(doc: str) -> Iterator[tuple[str, str, str]]:
    """Kind, name and body of each field; kind "" for the text around them."""
    found = list(_FIELD.finditer(doc))
    yield "", "", doc[: found[0].start()] if found else doc
    for field, after in zip_longest(found, found[1:]):
        body, blank, rest = doc[field.end() : after.start() if after else len(doc)].partition("\n\n")
        yield field[1], field[2], body
        if blank:
            yield "", "", rest


def line(text: str) -> str:
    """Running text, on one line."""
    return " ".join(_words(text).split())


def blocks(text: str) -> str:
    """Paragraphs, lists, literal blocks, definitions and tables."""
    made: list[str] = []
    literal = False
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if literal and part.startswith(" "):
            made.append(f"```text\n{dedent(part).replace('``', '')}\n```")
            continue
        literal = part.rstrip().endswith("::")
        plain = re.sub(r"::$", ":" if part.strip() != "::" else "", part.rstrip())
        if _RULE.match(plain.splitlines()[0] if plain else ""):
            made.append(_table(plain.splitlines()))
        elif re.match(r"``.*\n +", plain):
            made.append(_definitions(plain))
        else:
            made.append(_words(plain))
    return "\n\n".join(filter(None, made))


def _definitions(text: str) -> str:
    """Terms in literals, each with its meaning indented below."""
    rows = text.splitlines()
    return "\n".join(f"  {_words(row.strip())}" if row.startswith(" ") else f"- {_words(row)}\\" for row in rows)


def _table(rows: list[str]) -> str:
    """A simple table of reStructuredText."""
    edges = [match.span() for match in re.finditer("=+", rows[0])]
    starts = [start for start, _ in edges]
    cells: list[list[str]] = []
    for row in rows:
        if not _RULE.match(row):
            ends = [*starts[1:], None]
            found = [_words(row[start:end].strip()) for start, end in zip(starts, ends, strict=True)]
            if found[0]:
                cells.append(found)
            else:
                cells[-1] = [" ".join(filter(None, pair)) for pair in zip(cells[-1], found, strict=True)]
    headed = sum(bool(_RULE.match(row)) for row in rows) > 2
    return table(cells[0] if headed else [""] * len(edges), cells[headed:])


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def _words(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", _ROLE.sub(r"`\1`", text), flags=re.DOTALL)
