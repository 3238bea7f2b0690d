"""``python -m tests.docs.site`` builds the site in build/site. A broken link fails, and so does a file of another host."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from tests.docs.site.staging import PROJECT, stage

PAGES = PROJECT / "build" / "site-pages"
SITE = PROJECT / "build" / "site"


class Loads(HTMLParser):
    """What a browser loads to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.urls.append(named.get("src") or "")
        elif tag == "link" and named.get("rel") not in ("index", "search", "next", "prev", "canonical"):
            self.urls.append(named.get("href") or "")


def foreign(html: str) -> list[str]:
    """The files that a page loads from another host."""
    loads = Loads()
    loads.feed(html)
    return [url for url in loads.urls if "//" in url]


def main() -> int:
    """Build the site, and return the exit code."""
    pages = stage(PAGES)
    settings = ["-W", "--keep-going", "-q", "-E", "-b", "html", "-c", str(Path(__file__).parent)]
    done = subprocess.run([sys.executable, "-m", "sphinx", *settings, PAGES, SITE], check=False)
    if done.returncode:
        return done.returncode
    for file in SITE.rglob("*.html"):
        if urls := foreign(file.read_text()):
            print(f"{file.relative_to(PROJECT)} loads {', '.join(urls)} from another host", file=sys.stderr)
            return 1
    print(f"{len(pages) + 1} pages: open {SITE.relative_to(PROJECT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
