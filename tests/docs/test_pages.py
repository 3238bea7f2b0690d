"""The documents themselves: what is in them is known, and what they point to is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import PAGES, PROJECT, Kind, of_page, tokens
from tests.system.deaths.test_deaths import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))


@BY_PAGE
def test_every_block_of_code_is_of_a_kind_that_a_test_runs(page: Path) -> None:
    for block in of_page(page):
        assert block.kind is not Kind.UNKNOWN, (
            f"{block}: nothing runs a block of {block.word or 'no word'!r}; CONTRIBUTING.md has the words"
        )


@BY_PAGE
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} points to {path}, which is not there"
        if anchor:
            assert anchor in anchors(found), f"{page.name} points to {target}, and {found.name} has no such heading"


FILES = [
    f"/{file.relative_to(PROJECT)}"
    for file in (
        *PROJECT.glob("*.py"),
        *(file for room in ("airflow_hivelock", "dags_examples", "tests") for file in (PROJECT / room).rglob("*.py")),
    )
]


@BY_PAGE
def test_every_file_that_is_named_is_there(page: Path) -> None:
    """From the project's root, or by the end of its path."""
    named = re.findall(r"`([a-z_0-9/]+\.py)`", page.read_text())
    assert not [name for name in named if not any(file.endswith(f"/{name}") for file in FILES)]


def test_every_page_can_be_found_from_the_first() -> None:
    reached: set[Path] = set()
    unread = [PAGES[0]]
    while unread:
        page = unread.pop()
        if page not in reached:
            reached.add(page)
            there = ((page.parent / target.partition("#")[0]).resolve() for target in links(page) if ".md" in target)
            unread += [found for found in there if found in PAGES]
    assert not set(PAGES) - reached, "no page points to these"


def test_every_message_that_is_explained_is_one_that_the_code_says() -> None:
    """The first column of the table; ``…`` replaces the variable parts."""
    table = (PROJECT / "docs" / "questions.md").read_text().partition("| --- |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[1:] if "Hive's own words" not in row]
    code = "\n".join(file.read_text() for file in (PROJECT / "airflow_hivelock").rglob("*.py"))
    said = [
        part.strip(" :,.") for cell in cells for quoted in re.findall("`(.+?)`", cell) for part in quoted.split("…")
    ]
    assert len(cells) > 10
    assert not [part for part in said if part not in code]


def test_the_figures_of_the_sizing_are_those_of_the_costs() -> None:
    costs = (PROJECT / "docs" / "costs.md").read_text()
    sizing = (PROJECT / "docs" / "production.md").read_text().partition("## Sizing")[2]
    rows = re.findall(r"^\| (?:\w+, throughput|client|triggerer, .+?) \|.*", sizing, re.MULTILINE)
    figures = [figure for row in rows for figure in re.findall(r"([\d.]+) (?:to|ms|leases|%|kB) ", row)]
    assert len(rows) == 5
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", costs)] == []


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        for part in token.children or ():
            target = part.attrs.get("href") or part.attrs.get("src")
            if target:
                yield str(target)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = tokens(page)
    titles = (found[place + 1].content for place, token in enumerate(found) if token.type == "heading_open")
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_event_that_is_tried_on_a_real_airflow_is_in_the_table_of_deaths() -> None:
    table = (PROJECT / "docs" / "deaths.md").read_text().partition("| --- |\n")[2].partition("\n\n")[0]
    assert [row.split("|")[1].strip() for row in table.splitlines()] == [row.event for row in ROWS]
