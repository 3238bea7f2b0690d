"""The order of the layers, held by reading the imports: each line below is a promise of the design."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "airflow_hivelock"
LOCKS = "airflow_hivelock.locks"

CORE = ("invalid", "validate", "names", "model", "errors", "rules", "backend")
LAYERS: dict[str, tuple[str, ...]] = {
    **{module: CORE[:place] for place, module in enumerate(CORE)},
    "manager": CORE,
    "url": ("errors",),
    "hive": (*CORE, "manager", "url"),
    "backends": (*CORE, "hive", "url"),
    "connect": ("errors", "manager", "backends", "hive", "url"),
    "hive_leases": (*CORE, "manager"),
    "plan": (*CORE[:6], "hive"),
    "testing": (*CORE, "manager"),
    "statements": (*CORE, "hive", "plan", "manager"),
}
"""What a module of ``locks`` may import of ``locks``. A new module gets its line here."""

TELLS_TIME = {"locks/backends/memory.py"}
"""Its store is the process itself, so that the process's clock is the store's."""

CLOCKS = {(module, call) for module in ("datetime", "date") for call in ("now", "utcnow", "today")}
CLOCKS |= {("time", "time"), ("time", "time_ns")}

PRIVATE = ("execution_time", "jobs", "models", "serialization", "settings", "executors")
"""Parts of Airflow that it may change without notice, as is everything that starts with an underscore."""

ALLOWED = {
    "comms.py": "the line from a task, a trigger or a callback to Airflow",
    "ui/access.py": "the page runs in the API server, whose permissions, connections and runs nothing public gives",
}
"""Who may touch them all the same: one module for each side of Airflow, and why."""


def modules(*parts: str) -> list[str]:
    root = PACKAGE.joinpath(*parts)
    found = root.rglob("*.py") if root.is_dir() else [root] if root.exists() else []
    return sorted(str(path.relative_to(PACKAGE)) for path in found)


def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / module).read_text())


def imports(module: str) -> Iterator[str]:
    """Dotted names of what is imported: anywhere in the file, and for typing only, too."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: write the import in full, so that its layer shows"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def locks_imports(module: str) -> list[list[str]]:
    dotted = (name.removeprefix(f"{LOCKS}.").split(".") for name in imports(module) if name.startswith(f"{LOCKS}."))
    return list(dotted)


@pytest.mark.parametrize("module", [name for name in modules("locks") if name != "locks/__init__.py"])
def test_a_module_imports_only_what_stands_above_it(module: str) -> None:
    layer = module.split("/")[1].removesuffix(".py")
    assert layer in LAYERS, f"{module} has no place in LAYERS"
    for name in locks_imports(module):
        assert name[0] in (*LAYERS[layer], layer), f"{module} imports {'.'.join(name)}"


@pytest.mark.parametrize("module", modules("locks", "backends"))
def test_backends_never_import_one_another(module: str) -> None:
    own = module.split("/")[2].removesuffix(".py")
    for name in locks_imports(module):
        assert name[0] != "backends" or name[1] == own, f"{module} imports {'.'.join(name)}"


@pytest.mark.parametrize("module", [*modules("locks"), *modules("spark.py"), *modules("spark")])
def test_the_lock_manager_and_the_job_know_no_airflow(module: str) -> None:
    for name in imports(module):
        assert name.split(".")[0] != "airflow", f"{module} imports {name}"
        assert not name.startswith("airflow_hivelock.") or name.startswith((LOCKS, "airflow_hivelock.spark")), (
            f"{module} imports {name}, a part of the Airflow layer"
        )


@pytest.mark.parametrize("module", [name for name in modules("locks") if name not in TELLS_TIME])
def test_the_core_reads_no_wall_clock(module: str) -> None:
    assert not {"time.time", "time.time_ns"} & set(imports(module))
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            assert (owner, node.attr) not in CLOCKS, f"{module}:{node.lineno} reads {owner}.{node.attr}"


@pytest.mark.parametrize("module", [name for name in modules() if name not in ALLOWED])
def test_only_two_modules_touch_what_airflow_keeps_to_itself(module: str) -> None:
    for name in imports(module):
        top, *parts = name.split(".")
        if top != "airflow" or parts[:1] == ["providers"]:
            continue
        private = [part for part in parts if part.startswith("_") or part in PRIVATE]
        assert not private, f"{module} imports {name}; {' and '.join(ALLOWED)} are the places for that"


def test_the_rules_are_about_something() -> None:
    assert len(modules("locks")) > len(CORE)
    assert set(CORE) <= {name.split("/")[1].removesuffix(".py") for name in modules("locks")}
