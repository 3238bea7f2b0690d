"""``python -m tests.docs.glossary`` links the first use of a term in each page to the glossary."""

from __future__ import annotations

import re
from posixpath import relpath
from typing import TYPE_CHECKING

from tests.docs.blocks import PROJECT
from tests.docs.site.contents import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERMS = {
    r"(?<!Hive's )(?<!own )lock manager": "lock-manager",
    r"(?<![Hh]ive )(?<!suspect )(?<!lost )leases?": "lease",
    r"(?<!Kerberos )tickets?": "ticket",
    r"audit trail": "audit-trail",
    r"blockers?": "blocker",
    r"deferred (?:requests?|grants?)": "deferred-grant",
    r"epoch": "epoch",
    r"fencing tokens?": "fencing-token",
    r"force releases?": "force-release",
    r"Hive leases?": "hive-lease",
    r"invitations?": "invitation",
    r"invited": "invited",
    r"[Kk]eeper": "keeper",
    r"liveness nodes?": "liveness-node",
    r"lock nodes?": "lock-node",
    r"lock stores?": "lock-store",
    r"permits?": "semaphore-permit",
    r"placeholders?": "placeholder",
    r"queue positions?": "queue-position",
    r"suspect leases?": "suspect-lease",
    r"take-over": "take-over",
    r"tombstones?": "tombstone",
    r"waiters?": "waiter",
}
"""Patterns of terms, and their anchors in docs/glossary.md."""

ELSEWHERE = {
    "README.md",
    "glossary.md",
    "reference.md",
    "dependencies.md",
    "development.md",
    "releasing.md",
    "support.md",
}
"""Pages of links, the definitions, a generated page, and pages that explain no locks."""

PAGES = [
    PROJECT / page
    for listed in PARTS.values()
    for page in listed
    if page.startswith("docs/") and page.rpartition("/")[2] not in ELSEWHERE
]

_NO_PROSE = re.compile(r"(```.*?```|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|^#[^\n]*$|^\|[^\n]*$)", re.DOTALL | re.MULTILINE)


def unlinked(text: str) -> Iterator[tuple[str, int, int]]:
    """Anchor, start and end of each term that occurs in a page's prose, but in no link to the glossary."""
    parts = _NO_PROSE.split(text)
    for pattern, anchor in TERMS.items():
        if f"glossary.md#{anchor})" in text:
            continue
        use = re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])".replace(" ", r"\s"))
        place = 0
        for number, part in enumerate(parts):
            if number % 2 == 0 and (found := use.search(part)):
                yield anchor, place + found.start(), place + found.end()
                break
            place += len(part)


def main() -> None:
    """Link each page's terms."""
    for page in PAGES:
        text = page.read_text()
        glossary = _glossary(page)
        for anchor, start, end in sorted(unlinked(text), key=lambda use: use[1], reverse=True):
            text = f"{text[:start]}[{text[start:end]}]({glossary}#{anchor}){text[end:]}"
        page.write_text(text)


def _glossary(page: Path) -> str:
    return relpath(str(PROJECT / "docs" / "glossary.md"), str(page.parent))


if __name__ == "__main__":
    main()
