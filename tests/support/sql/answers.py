"""Spark's answers to the statements of its own suite: the files of results next to its statements."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

PARSER, ANALYZER = "Spark's parser", "Spark's analyzer"

_QUERY = re.compile(
    r"^-- !query\n(?P<text>.*?)^-- !query schema\n.*?^-- !query output\n(?P<output>[^\n]*)", re.DOTALL | re.MULTILINE
)
_REFUSED = re.compile(r"org\.apache\.spark\.sql\.(?:catalyst\.(?:(?P<part>\w+)\.)?)?(?P<kind>\w+)$")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


class Answers:
    """Which statements of one file Spark refuses before it runs them.

    :ivar known: whether there are results for the file.
    """

    def __init__(self, file: Path) -> None:
        results = Path("/results/".join(f"{file}.out".rsplit("/inputs/", 1)))
        self.known = results.exists()
        self._refused: defaultdict[str, list[str]] = defaultdict(list)
        text = results.read_text(errors="replace") if self.known else ""
        for found in _QUERY.finditer(text):
            self._refused[_plain(found["text"])].append(_refuser(found["output"]))

    def refuses(self, text: str) -> str:
        """Which part of Spark refuses the next statement *text* of the file; empty if Spark runs it or has no answer."""
        answers = self._refused.get(_plain(text), [""])
        return answers.pop(0) if len(answers) > 1 else answers[0]


def _refuser(output: str) -> str:
    kind = found["kind"] if (found := _REFUSED.match(output)) else ""
    if kind == "ParseException":
        return PARSER
    return ANALYZER if kind.endswith("AnalysisException") or (found and found["part"] == "analysis") else ""


def _plain(text: str) -> str:
    return " ".join(_COMMENT.sub("", text).split()).rstrip("; ")
