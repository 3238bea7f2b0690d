"""Plans each statement of a folder of .q and .sql files: ``python -m tests.support.sql.suite FOLDER``.

A file is a session: USE, SET, views and temporary objects apply to the statements after them. A refused statement is
printed with its reason. So is a plan that differs from a second, independent reading: see :mod:`.reading`. Statements
that Spark itself refuses are counted separately, if its results are in ``results/`` next to ``inputs/``: see
:mod:`.answers`.
"""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hivelock.locks import InvalidRequest
from airflow_hivelock.locks.plan.planner import Planner
from airflow_hivelock.locks.plan.session import SessionState
from airflow_hivelock.locks.plan.sql import Sql
from airflow_hivelock.locks.plan.statement import add
from airflow_hivelock.locks.plan.tables import KnownTables
from tests.support.sql.answers import ANALYZER, PARSER, Answers
from tests.support.sql.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MOST_S = 10
_PIECE = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|;|.""", re.DOTALL)
_DELIMITED = re.compile(r"--QUERY-DELIMITER-START(.*?)--QUERY-DELIMITER-END", re.DOTALL)
_LEADING = re.compile(r"(?:--[^\n]*(?:\n|$)|/\*.*?\*/|\s)*", re.DOTALL)
_PLACE = re.compile(r"line \d+, column \d+(?:, at (?P<there>.*?))?: ", re.DOTALL)
NO_NAME = re.compile(
    r"in a catalog of its own|are not names of|is not a (?:table|database) name|which ZooKeeper cannot|the name in IDENTIFIER is|ends like a lock"
)
"""Refusals of what no lock can have as a name."""

STEP = re.compile(
    r"reads and writes|leave U?N?LOCK out|plan it in parts|constant text|write IMPORT|put the comment|name (?:it|these)"
)
_SHELL = ("dfs", "source", "compile", "crypto", "erasure")


class TooLong(Exception):
    """A statement took more than :data:`MOST_S` seconds."""


def split(text: str) -> Iterator[str]:
    """The statements of a file, as Hive's and Spark's test drivers cut it."""
    at = 0
    for whole in _DELIMITED.finditer(text):
        yield from _cut(text[at : whole.start()])
        yield whole[1].strip().removesuffix(";")
        at = whole.end()
    yield from _cut(text[at:])


def _cut(text: str) -> Iterator[str]:
    piece = ""
    for found in _PIECE.finditer(re.sub(r"^\s*!.*$", "", text + "\n;", flags=re.MULTILINE)):
        if found[0] != ";":
            piece += found[0]
            continue
        if _LEADING.sub("", piece, count=1):
            yield piece.strip()
        piece = ""


def rendered(text: str) -> str:
    """*text* with something for its variables, which Hive and Spark's test driver put in before they read it."""
    return re.sub(r"\$\{[^}]*\}", "x", text.replace("${system:test.dfs.mkdir}", "-mkdir -p"))


def kind(text: str) -> str:
    word = _LEADING.sub("", text, count=1).partition(" ")[0].lower()
    return "EXPLAIN" if word.startswith("explain") else "commands of Hive's shell" if word in _SHELL else "others"


class Run:
    """The figures of one run."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.refused: defaultdict[str, list[str]] = defaultdict(list)
        self.wrong: defaultdict[str, list[str]] = defaultdict(list)
        self.slowest = (0.0, "")
        self.times_s: list[float] = []

    def file(self, file: Path) -> None:
        planner, reading = Planner(SessionState(KnownTables()), follows="stricter", limit=1_000), Reading()
        answers = Answers(file)
        for written in split(file.read_text(errors="replace")):
            text, refuser = rendered(written), answers.refuses(written)
            for kept in (planner.scans, planner.writes, planner.looks):
                kept.clear()  # views go on adding to them
            database, what, where = planner.session.database, kind(text), f"{file.name}: {' '.join(text.split())}"
            self.count[what] += 1
            self.count[f"{what} {refuser}"] += bool(refuser)
            began = time.process_time()
            error = self._plan(text, planner)
            self.times_s.append(time.process_time() - began)
            self.slowest = max(self.slowest, (self.times_s[-1], where))
            if error is None:
                for difference, name in reading.differences(text, database, planner):
                    self.wrong[difference].append(f"{name} in {where}")
            elif isinstance(error, (InvalidRequest, RecursionError)):
                found = _PLACE.match(str(error))
                why = _PLACE.sub("", str(error)) if isinstance(error, InvalidRequest) else "nested too deep"
                self.count[f"{what} refused"] += 1
                apart = "names" if NO_NAME.search(str(error)) else refuser or "ours"
                self.count[f"{what} refused: {apart}"] += 1
                if not STEP.search(str(error)):
                    self.wrong["REFUSED without a next step"].append(f"{error} in {where}")
                self.refused[f"{what} ({apart}): {why[:90]}"].append(f"{found['there'] if found else ''} in {where}")
            else:
                self.wrong[f"CRASH or HANG: {error!r}"[:90]].append(where)
            if error is None and what == "others":
                reading.after(text, database)

    def summary(self, what: str) -> str:
        """Of *what*, how many are refused; and apart from names and from what Spark refuses, which share."""
        total, names, parser, analyzer, ours = (
            self.count[f"{what}{part}"]
            for part in ("", *(f" refused: {apart}" for apart in ("names", PARSER, ANALYZER, "ours")))
        )
        runs = total - self.count[f"{what} {PARSER}"] - self.count[f"{what} {ANALYZER}"]
        return (
            f"{what}: {total:,} statements, {self.count[f'{what} refused']:,} refused: {names:,} for their names, {parser:,} "
            f"by {PARSER} as well, {analyzer:,} by {ANALYZER} as well, {ours:,} others: {100 * ours / max(runs, 1):.2f} % of "
            f"the {runs:,} that neither refuses"
        )

    def _plan(self, text: str, planner: Planner) -> BaseException | None:
        signal.setitimer(signal.ITIMER_REAL, MOST_S)
        try:
            for statement in Sql(text).statements:
                add(statement, planner)
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            return error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None


EXAMPLES, WIDTH = 2, 160
"""How many are printed for each reason, and how much of each."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, ring)
    logging.disable()
    run, began = Run(), time.monotonic()
    for file in sorted((*given.folder.rglob("*.q"), *given.folder.rglob("*.sql"))):
        run.file(file)
    p99_ms = 1000 * sorted(run.times_s)[len(run.times_s) * 99 // 100] if run.times_s else 0
    print(
        f"{time.monotonic() - began:.0f} s; p99 {p99_ms:.1f} ms; slowest {run.slowest[0]:.2f} s: {run.slowest[1][:WIDTH]}"
    )
    for what in ("others", "EXPLAIN", "commands of Hive's shell"):
        print(run.summary(what))
    for title, found in (("Refused", run.refused), ("Wrong, or read wrongly by the second reading", run.wrong)):
        print(f"\n{title}:")
        for why, those in sorted(found.items(), key=lambda item: -len(item[1])):
            print(f"{len(those):6} {why}")
            for each in those[:EXAMPLES]:
                print(f"         {each[:WIDTH]}")
    return bool(run.wrong)


if __name__ == "__main__":
    sys.exit(main())
