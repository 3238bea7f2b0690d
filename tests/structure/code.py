"""What can be read off the source, without running any of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PACKAGE = "airflow_hivelock"
LONG = 400
"""A file with more lines than this is named."""


def modules(root: Path) -> dict[str, Path]:
    """The package's modules in the checkout *root*, by dotted name."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(found: Mapping[str, Path]) -> dict[str, set[str]]:
    """The modules of the package that each one imports: anywhere in its file, and also for typing only."""
    graph = {}
    for module, path in found.items():
        named = (_module(name, found) for name in _imported(path))
        graph[module] = {name for name in named if name} - {module}
    return graph


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module(name: str, found: Mapping[str, Path]) -> str:
    """The module of the package that contains an imported *name*; "" for other code."""
    while name and name not in found:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that all lead to one another."""
    reached = {module: _reached(graph, module) for module in graph}
    groups = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
    return sorted(map(sorted, filter(None, groups)))


def _reached(graph: Mapping[str, set[str]], module: str) -> set[str]:
    seen: set[str] = set()
    ahead = set(graph[module])
    while ahead:
        seen |= ahead
        ahead = set().union(*(graph[other] for other in ahead)) - seen
    return seen


def twice(found: Mapping[str, Path]) -> dict[str, list[str]]:
    """The modules with a class of one name, by that name, where there are several."""
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for module, path in found.items():
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(module)
    return {name: where for name, where in sorted(classes.items()) if len(where) > 1}


def methods(found: Mapping[str, Path], name: str) -> int:
    """How many the class of that name has of its own."""
    return sum(
        isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        for path in found.values()
        for node in _tree(path).body
        if isinstance(node, ast.ClassDef) and node.name == name
        for member in node.body
    )


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
