"""Hints for malformed statements: the statement that the user probably meant."""

from __future__ import annotations

import difflib
import re

from airflow_hivelock.locks.statements.statement import SYNTAX

_ALIKE = 0.75
"""The similarity, from 0 to 1, from which a word counts as a typing error of another."""

_LONGEST = 2_000
"""The longest statement that gets a hint, in characters. The patterns take time in the square of the length."""

_LONGEST_BEGINNING = 200
"""The length of the part of a statement that can be a beginning, in characters."""

# Possessive, and each from the start of a word. Otherwise a hostile text would take time in the cube of its length.
_SLASHED = re.compile(r"(?<![\w.`])(?P<table>[\w.`]++)/(?P<levels>\w++=[^\s/]++(?:/\w++=[^\s/]++)*+)")
_UNQUOTED = re.compile(r"(?<!\w)(?P<column>\w++)\s*+=\s*+(?P<value>[0-9]*+[^\s'\"`,()0-9][^\s'\"`,()]*+)\s*+[,)]")

_FIRST_WORDS = re.compile(r"(?!USE|SET name)[A-Z]+(?: [A-Z]+)*\b")

BEGINNINGS = (
    *(words[0] for words in map(_FIRST_WORDS.match, SYNTAX.replace("{TABLE", "TABLE").splitlines()) if words),
    "UNLOCK DATABASE",
)
"""The first words of the statements, without USE and SET."""


def of(text: str) -> str:
    """A sentence with the probable meaning of a malformed *text*; empty if there is none, or if the text is long."""
    if len(text) > _LONGEST:
        return ""
    if found := _SLASHED.search(text):
        levels = (level.partition("=") for level in found["levels"].split("/"))
        pairs = [(column, value.strip("'\"")) for column, _, value in levels]
        written = ", ".join(f"{column}='{value}'" for column, value in pairs)
        partition = f"{found['table']} PARTITION ({written})"
        return f" Did you mean {text[: found.start()]}{partition}{text[found.end() :]}?"
    if found := _UNQUOTED.search(text):
        return f" Write a value that is not a whole number in quotes: {found['column']}='{found['value']}'."
    return ""


def beginning(text: str) -> str:
    """A sentence with the statement that *text* resembles; empty if it resembles none."""
    words = re.findall(r"\w+", text[:_LONGEST_BEGINNING].upper())
    for whole in (True, False):  # False: compare without the first word
        for each in BEGINNINGS:
            meant = each.split() if whole else each.split()[1:]
            if meant and len(words) >= len(meant) and all(map(_alike, words, meant)):
                return f" Did you mean {each}?"
    return ""


def _alike(word: str, meant: str) -> bool:
    return difflib.SequenceMatcher(None, word, meant).ratio() >= _ALIKE
