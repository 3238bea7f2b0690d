"""Every name of this package that Airflow and pip get exists."""

from __future__ import annotations

import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.get_provider_info import get_provider_info

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = "airflow_hivelock"


def dotted(said: Any) -> Iterator[str]:
    """The names of modules, and of what is in them, anywhere in *said*."""
    if isinstance(said, str) and said.startswith(f"{OURS}."):
        yield said.replace(":", ".")
    elif isinstance(said, dict | list):
        for each in said.values() if isinstance(said, dict) else said:
            yield from dotted(each)


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
NAMES = sorted({*dotted(get_provider_info()), *dotted(PROJECT)})


@pytest.mark.parametrize("name", NAMES)
def test_each_name_stands_for_something(name: str) -> None:
    assert resolve_name(name) is not None


def test_hooks_operators_triggers_scripts_and_plugins_are_among_them() -> None:
    kinds = ("hooks", "operators", "sensors", "triggers", "links", "cli", "ui", "get_provider_info")
    assert {name.split(".")[1] for name in NAMES} == set(kinds)
