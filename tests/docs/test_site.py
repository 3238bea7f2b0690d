"""The site without Sphinx: its navigation has every page, and the links of the copies work. ``make docs`` does the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.site.__main__ import foreign
from tests.docs.site.contents import PARTS, TITLES, parts, toctrees
from tests.docs.site.staging import DAGS_PAGE, PROJECT, linked, stage

if TYPE_CHECKING:
    from pathlib import Path

PAGES = {"README.md", "docs/costs.md", "docs/guides/secure.md", "spec/README.md", DAGS_PAGE}


def test_each_page_is_in_one_part_of_the_navigation(tmp_path: Path) -> None:
    pages = stage(tmp_path / "pages")
    shown = [page for listed in parts(pages).values() for page in listed]
    assert sorted(shown) == sorted(pages)
    assert set(TITLES) <= set(pages)
    assert {page for listed in PARTS.values() for page in listed} <= set(pages)
    assert all(part for part in parts(pages).values()), "a part without pages"
    assert toctrees(pages) in (tmp_path / "pages" / "index.md").read_text()


def test_a_page_that_nobody_listed_joins_a_part() -> None:
    found = parts(["docs/guides/new.md", "docs/new.md"])
    assert found["Guides"] == ["docs/guides/new.md"]
    assert found["Operations"] == ["docs/new.md"]


@pytest.mark.parametrize(
    ("page", "text", "copy"),
    [
        ("docs/costs.md", "[start](../README.md#use-it)", "[start](../index.md#use-it)"),
        ("docs/costs.md", "[a](guides/secure.md#x)", "[a](guides/secure.md#x)"),
        ("docs/guides/secure.md", "[spec](../../spec)", "[spec](../../spec/README.md)"),
        ("docs/costs.md", "[the tests](../tests/simulation)", "the tests (`tests/simulation`)"),
        ("docs/costs.md", "[here](#there)", "[here](#there)"),
        ("docs/costs.md", "![a picture](images/waiting.png)", "![a picture](images/waiting.png)"),
        ("docs/costs.md", "```text\n[x](../README.md)\n```", "```text\n[x](../README.md)\n```"),
        (
            "README.md",
            "[jobs](dags_examples) and [a DAG](dags_examples/flights_daily.py)",
            "[jobs](dags_examples/README.md) and [a DAG](dags_examples/README.md#flights_dailypy)",
        ),
    ],
)
def test_a_link_of_a_copy_leads_to_a_page_of_the_site(page: str, text: str, copy: str) -> None:
    assert linked(page, text, PAGES) == copy


@pytest.mark.parametrize("target", ["gone.md", "../tests/gone", "guides/gone.md#x"])
def test_a_broken_link_stays_so_that_the_build_fails(target: str) -> None:
    assert linked("docs/costs.md", f"[x]({target})", PAGES) == f"[x]({target})"


def test_each_dag_to_copy_has_its_heading(tmp_path: Path) -> None:
    stage(tmp_path / "pages")
    headings = set(re.findall("^## (.+)$", (tmp_path / "pages" / DAGS_PAGE).read_text(), re.MULTILINE))
    files = {str(file.relative_to(PROJECT / "dags_examples")) for file in (PROJECT / "dags_examples").rglob("*.py")}
    assert headings == {file for file in files if not file.endswith("__init__.py")}


def test_a_file_of_another_host_is_found() -> None:
    assert foreign(
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="//cdn.example/x.css">'
    ) == [
        "https://cdn.example/x.js",
        "//cdn.example/x.css",
    ]
    assert not foreign(
        '<a href="https://semver.org/">x</a><img src="_images/locks.png"><link rel="next" href="a.html">'
    )
