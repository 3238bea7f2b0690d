"""A page links a term where a reader first meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import PROJECT
from tests.docs.glossary import PAGES, TERMS, unlinked
from tests.docs.test_pages import anchors

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_each_term_of_a_page_is_linked_once(page: Path) -> None:
    text = page.read_text()
    missing = [text[start:end] for _, start, end in unlinked(text)]
    assert not missing, "python -m tests.docs.glossary links them"


def test_each_term_is_in_the_glossary() -> None:
    assert set(TERMS.values()) <= anchors(PROJECT / "docs" / "glossary.md")


def test_a_use_in_code_a_table_or_a_heading_is_no_first_use() -> None:
    assert not list(unlinked("# The keeper\n`keeper`\n| keeper |\n```text\nkeeper\n```\n[the keeper](x.md)\n"))
    text = "Hive's lock manager and the keeper"
    assert [(anchor, text[start:end]) for anchor, start, end in unlinked(text)] == [("keeper", "keeper")]


def test_a_link_to_the_glossary_counts() -> None:
    assert not list(unlinked("The [keeper](../glossary.md#keeper) frees it. The keeper runs."))
