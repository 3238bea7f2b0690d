"""The readme of the built package: README.md with absolute links, because a package index shows no other file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?![a-z][a-z+.-]*:|#|/)(?P<path>[^)\s]+)\)")


class Readme(MetadataHookInterface):
    """Sets ``readme``. The links point to the tag of the version, so that they show what the reader has installed."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        absolute = with_absolute_links(text, metadata["urls"]["Source"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute}


def with_absolute_links(text: str, source: str, tag: str) -> str:
    """*text* with each relative link of Markdown as a URL below *source*, at *tag*."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}[{found['text']}]({source}/{kind}/{tag}/{found['path']})"

    return _RELATIVE.sub(link, text)
