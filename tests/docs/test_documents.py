"""docs/documents.md: what each row points to is there, and each row points to a test."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

ROWS = re.findall(
    r"^\| (?!---|the document|the account|measured)(.+) \| (.+) \| (.+) \|$",
    (PROJECT / "docs/documents.md").read_text(),
    re.M,
)
_NODE = re.compile(r"`([\w/]+\.py)(?:::([\w.]+))?`")


@cache
def defined(file: Path) -> frozenset[str]:
    """Functions and classes, and methods both alone and as ``Class.method``."""
    tree = ast.parse(file.read_text())
    found = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return frozenset(found)


def missing(cell: str) -> list[str]:
    """The files and names of a cell that are not there; from the project's root, or from the package's."""
    gone = []
    for path, name in _NODE.findall(cell):
        file = next((each for each in (PROJECT / path, PROJECT / "airflow_hivelock" / path) if each.exists()), None)
        if file is None or (name and name not in defined(file)):
            gone.append(f"{path}::{name}")
    return gone


def test_there_are_rows_of_all_three() -> None:
    assert len(ROWS) > 90
    assert len({says for says, _, _ in ROWS}) == len(ROWS), "one thing, one row"


@pytest.mark.parametrize(("says", "here", "shown"), ROWS, ids=[says for says, _, _ in ROWS])
def test_what_a_row_points_to_is_there(says: str, here: str, shown: str) -> None:
    assert not missing(here)
    assert not missing(shown)
    tests = [name or path for path, name in _NODE.findall(shown)]
    assert tests, "which test shows it?"
    assert all(re.search(r"(^|/)test_", test) for test in tests), "a test, not what it tests"
    assert "not done" not in f"{here} {shown}".lower()


def test_a_test_that_is_gone_is_told() -> None:
    assert missing("`tests/docs/test_documents.py::test_that_is_gone`")
    assert missing("`tests/docs/test_gone.py`")
    assert missing("`locks/hive_leases.py::HiveLeases.grab`")
    assert not missing("`tests/docs/test_documents.py::missing`, `locks/hive_leases.py::HiveLeases.grab_lease`")
