"""What ``make lint`` needs to check the page's scripts: a Node that is new enough, and tools from any registry."""

from __future__ import annotations

import json

import pytest

from tests.page.__main__ import HERE, is_new_enough


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [
        ("v18.20.8", False),
        ("v20.18.3", False),
        ("v20.19.0", True),
        ("v21.7.3", False),
        ("v22.12.0", False),
        ("v22.13.0", True),
        ("v23.11.1", False),
        ("v24.0.0", True),
        ("v26.1.0", True),
        ("", False),
    ],
)
def test_a_node_that_eslint_does_not_run_on_is_not_used(version: str, is_enough: bool) -> None:
    assert is_new_enough(version) == is_enough


def test_the_lock_file_names_versions_and_no_registry() -> None:
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []
    wanted = json.loads((HERE / "package.json").read_text())["devDependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
