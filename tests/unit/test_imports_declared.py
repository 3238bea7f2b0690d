"""Each library that the package imports is declared in pyproject.toml: no import relies on another package's choice."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_hivelock"

HOMES = {
    "airflow": "apache-airflow",
    "airflow.providers.apache.spark": "apache-airflow-providers-apache-spark",
    "airflow.providers.cncf.kubernetes": "apache-airflow-providers-cncf-kubernetes",
    "airflow.providers.common.compat": "apache-airflow-providers-common-compat",
    "airflow.providers.openlineage": "apache-airflow-providers-openlineage",
    "airflow.providers.standard": "apache-airflow-providers-standard",
    "attr": "attrs",
    "openlineage": "openlineage-python",
    "puresasl": "pure-sasl",
    "thrift_sasl": "thrift-sasl",
}
"""Import names that differ from the name of their distribution."""

THE_USER_S = {"airflow.providers.amazon", "airflow.providers.google", "botocore", "delta.tables"}
"""A lease records a job of such an operator, so whoever reads the record has installed the operator's provider. A PySpark
job of the user imports Delta's classes."""

EXTRAS_OF = {
    "lineage": {"openlineage"},
    "locks/backends/database/mysql": {"mysql"},
    "locks/backends/database/postgresql": {"postgres"},
    "locks/backends/database": {"mysql", "postgres"},
    "locks/backends/hiveserver2": {"hiveserver2"},
    "locks/backends/metastore": {"metastore"},
    "locks/hive/kerberos": {"kerberos"},
    "locks/hive/mechanism": {"kerberos"},
    "locks/hive/sasl": {"hiveserver2", "kerberos"},
    "locks/hive/thrift": {"hiveserver2", "kerberos", "metastore"},
    "locks/hive/sockets": {"hiveserver2", "metastore"},
    "operators/hive_jobs": {"hiveserver2"},
    "spark": {"spark"},
    "work": {"kubernetes"},
}
"""The extras that a module's imports may come from, by the beginning of its path. All others have no extra."""


def libraries(path: Path) -> Iterator[str]:
    """The dotted names that *path* imports from other packages, also in functions and by ``import_module``."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
            names = [ast.literal_eval(part) for part in node.args[:1] if isinstance(part, ast.Constant)]
        for name in names:
            if name.partition(".")[0] not in {*sys.stdlib_module_names, "airflow_hivelock"}:
                yield name


def distribution(module: str) -> str:
    """The distribution that *module* comes from, as pyproject.toml spells it."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        if found := HOMES.get(".".join(parts[:count])):
            return found
    return parts[0]


def declared() -> dict[str, set[str]]:
    """Each declared distribution and its extras; the extra of a plain dependency is empty."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, set[str]] = {}
    for extra, requirements in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in requirements:
            found.setdefault(re.split(r"[\[<>=]", requirement)[0], set()).add(extra)
    return found


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_each_import_is_declared(module: str) -> None:
    allowed = {"", *(extra for start, extras in EXTRAS_OF.items() if module.startswith(start) for extra in extras)}
    known = declared()
    for name in libraries(PACKAGE / module):
        if any(f"{name}.".startswith(f"{other}.") for other in THE_USER_S):
            continue
        extras = known.get(distribution(name), set())
        assert extras & allowed, (
            f"{module} imports {name}: pyproject.toml declares {distribution(name)} in {extras or 'nothing'}"
        )


def test_each_declared_library_is_imported() -> None:
    imported = {distribution(name) for module in MODULES for name in libraries(PACKAGE / module)}
    assert declared().keys() - imported == set()


@pytest.mark.parametrize("start", EXTRAS_OF)
def test_each_place_with_an_extra_is_there(start: str) -> None:
    assert any(module.startswith(start) for module in MODULES)
