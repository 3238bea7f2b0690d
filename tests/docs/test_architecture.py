"""docs/architecture.md: the files that it names exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import PROJECT

ARCHITECTURE = (PROJECT / "docs/architecture.md").read_text()
PACKAGE = PROJECT / "airflow_hivelock"
ENDS = ("", ".py")


def test_each_file_that_the_architecture_names_is_there() -> None:
    named = set(re.findall(r"`(\w[\w/]*/[\w/.]*|\w+\.py)`", ARCHITECTURE))
    assert len(named) > 40
    homes = (PROJECT, PACKAGE, PACKAGE / "locks", PACKAGE / "locks/backends/zookeeper")
    assert not {name for name in named if not any((home / f"{name}{end}").exists() for home in homes for end in ENDS)}


@pytest.mark.parametrize("backend", ["zookeeper", "database", "metastore"])
def test_each_module_in_the_drawing_of_a_backend_is_there(backend: str) -> None:
    drawn = re.search(rf"── backends/{backend} +(.+)", ARCHITECTURE)
    assert drawn
    modules = set(re.findall(r"[\w/]+", drawn[1].partition("(")[0])) - {"kazoo"}
    homes = (PACKAGE / "locks/backends" / backend, PACKAGE / "locks")
    assert not {name for name in modules if not any((home / f"{name}.py").exists() for home in homes)}
