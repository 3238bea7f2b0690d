"""The table of dependencies has the same contents as pyproject.toml and the packages themselves."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_ROW = re.compile(
    r"\| (?:`(?P<extra>[\w-]+)`)? ?\| `(?P<requirement>[^`]+)` \| (?P<licence>[\w. -]+) \| (?P<why>[^|]+) \|"
)
ROWS = [row.groupdict() for row in _ROW.finditer((ROOT / "docs/dependencies.md").read_text())]

SPELLINGS = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "MIT License": "MIT",
}
COMPATIBLE = {"Apache-2.0", "BSD-3-Clause", "ISC", "MIT", "MIT OR Apache-2.0"}
LIBRARIES = {"LGPL-3.0-only"}
"""May be used, but not be had without being asked for."""


def test_each_dependency_has_its_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {(None, requirement) for requirement in project["dependencies"]}
    for extra, requirements in project["optional-dependencies"].items():
        declared |= {(extra, requirement) for requirement in requirements}
    assert {(row["extra"], row["requirement"]) for row in ROWS} == declared
    assert all(len(row["why"]) > 4 for row in ROWS)


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/compatibility.md"])
def test_the_oldest_airflow_is_what_its_users_are_told(page: str) -> None:
    (bound,) = re.findall(r"apache-airflow>=([\d.]+),", " ".join(row["requirement"] for row in ROWS))
    assert re.search(rf"Airflow (from )?{re.escape(bound)}\b", (ROOT / page).read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["requirement"])
def test_its_licence_is_compatible_and_what_the_package_says(row: dict[str, str]) -> None:
    assert row["licence"] in (COMPATIBLE | LIBRARIES if row["extra"] else COMPATIBLE)
    name = re.split(r"[\[<>=]", row["requirement"])[0]
    try:
        installed: Any = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    classes = [line.rpartition(" :: ")[2] for line in installed.get_all("Classifier", []) if line.startswith("License")]
    said = installed.get("License-Expression") or installed.get("License") or "".join(classes)
    assert SPELLINGS.get(said, said) == row["licence"]
