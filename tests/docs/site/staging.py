"""Copies the pages to the folder that Sphinx reads, with links that work there.

The Markdown stays as GitHub shows it. Only the copies differ:

- README.md is the first page, ``index.md``.
- The DAGs to copy are one page, with their code.
- A link to any other file of the project is its path, because the site has no source code.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from posixpath import normpath, relpath

from tests.docs.site.contents import toctrees

PROJECT = Path(__file__).parents[3]
AROUND = (*sorted(file.name for file in PROJECT.glob("*.md")), "spec/README.md")
DAGS = "dags_examples"
DAGS_PAGE = f"{DAGS}/README.md"

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def stage(target: Path) -> list[str]:
    """Write all pages below *target*, and return them as paths from the project's root, without README.md."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(PROJECT / "docs", target / "docs")
    for name in AROUND:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(PROJECT / name, target / name)
    (target / DAGS).mkdir()
    (target / DAGS_PAGE).write_text(dags())
    pages = sorted(str(page.relative_to(target)) for page in target.rglob("*.md"))
    for page in pages:
        file = target / page
        file.write_text(linked(page, file.read_text(), set(pages)))
    pages.remove("README.md")
    first = (target / "README.md").rename(target / "index.md")
    first.write_text(f"{first.read_text()}\n{toctrees(pages)}\n")
    return pages


def linked(page: str, text: str, pages: set[str]) -> str:
    """A page's text with the links that work in the site. Code blocks stay as they are."""
    parts = _CODE.split(text)
    return "".join(
        part if number % 2 else _LINK.sub(lambda link: _link(page, link, pages), part)
        for number, part in enumerate(parts)
    )


def _link(page: str, link: re.Match[str], pages: set[str]) -> str:
    folder = page.rpartition("/")[0]
    to = normpath(f"{folder}/{link['path']}" if folder else link["path"])
    anchor = link["anchor"] or ""
    if to == "README.md":
        to = "index.md"
    elif to.startswith(DAGS):
        to, anchor = DAGS_PAGE, f"#{_slug(to)}" if to.endswith(".py") else ""
    elif f"{to}/README.md" in pages:
        to = f"{to}/README.md"
    elif to not in pages and not to.endswith(".md") and (PROJECT / to).exists():
        return f"{link['text']} (`{to}`)" if to not in link["text"] else link["text"]
    return f"[{link['text']}]({relpath(to, folder or '.')}{anchor})"


def dags() -> str:
    """A page of the DAGs to copy and their jobs."""
    parts = [
        "# DAGs to copy",
        f"Each file is in the folder `{DAGS}` of the project. The button at the right of a block copies it.",
    ]
    for file in sorted((PROJECT / DAGS).rglob("*.py"), key=lambda file: (len(file.parts), file)):
        if file.name != "__init__.py":
            parts += [f"## {file.relative_to(PROJECT / DAGS)}", f"```python\n{file.read_text()}```"]
    return "\n\n".join(parts) + "\n"


def _slug(path: str) -> str:
    """The anchor that a heading with this path has, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", path.removeprefix(f"{DAGS}/").lower())
