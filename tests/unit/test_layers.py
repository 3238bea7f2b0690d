"""The order of the rooms and their size, held by reading the code: each line below is a promise of the design."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.structure import code

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "airflow_hivelock"
LOCKS = "airflow_hivelock.locks"

ROOMS: dict[str, str] = {
    "locks.invalid": "the errors of bad input",
    "locks.pauses": "pauses between tries",
    "locks.durations": "durations as people write them",
    "locks.validate": "what comes out of a store, read whole or refused",
    "locks.formats": "the formats of stored and passed data",
    "locks.model": "the values that everything else speaks of",
    "locks.errors": "the error tree; a time-out names values",
    "locks.url": "what URLs of stores say",
    "locks.spelling": "under which name a value of a partition column is kept",
    "locks.permits": "the rules of a group's permits",
    "locks.calls": "the rules of take-over: which of an owner's calls acts",
    "locks.queueing": "the rules: what excludes what, and who goes first",
    "locks.invitations": "the rules of requests that wait for a worker slot",
    "locks.rules": "the hierarchy, and the messages about requests",
    "locks.past": "which past leases are shown",
    "locks.expected": "how long a request will probably wait",
    "locks.backend": "what a backend must do",
    "locks.groups": "groups whose limit is in the store",
    "locks.hive": "what is said to Hive's servers",
    "locks.plan": "what data, and SQL, mean in locks",
    "locks.backends": "the stores",
    "locks.pending": "waiting: the deadline, and the patience with an outage",
    "locks.manager": "what is done with locks, over any backend",
    "locks.interrupted": "what an interrupted caller does not see",
    "locks.hive.coverage": "which of Hive's lock managers protects what",
    "locks.connect": "from a URL to a manager",
    "locks.reservations": "what keeps work off until a time",
    "locks.hive_leases": "the documented calls on Hive leases",
    "locks.statements": "Hive's lock statements",
    "locks": "the lock manager's public names",
    "spark": "what a PySpark job asks about its lease",
    "compat": "what differs between Airflows",
    "settings": "what a connection says",
    "hooks": "the manager that a connection gives",
    "spec": "what a task wants locked, and whose its lease is",
    "comms": "what a task may ask of Airflow",
    "templates": "how names are rendered",
    "metrics": "what StatsD is told",
    "waiting": "how a task waits",
    "links": "the way from a task to the page",
    "work": "what runs under a lease",
    "triggers": "what waits and renews in the triggerer",
    "operators": "what locks, runs and frees",
    "sensors": "what waits until data is free",
    "callbacks": "what frees when a run has ended",
    "ui": "the page",
    "cli": "the command line",
    "": "the public names",
    "get_provider_info": "what Airflow is told of the package",
    "lineage": "what OpenLineage is told; nothing else may need it",
}
"""All rooms of the package, the lowest first: a module imports of its own room, and of rooms below it.

A module belongs to the room with the longest name that it starts with. A new one gets its line here."""

APART: dict[str, tuple[str, ...]] = {
    "locks.backends": ("locks.plan",),
    "locks.pending": ("locks.url", "locks.hive", "locks.plan", "locks.backends"),
    "locks.manager": ("locks.url", "locks.hive", "locks.plan", "locks.backends"),
    "locks.hive_leases": ("locks.url", "locks.hive", "locks.plan", "locks.backends", "locks.connect"),
    "locks.reservations": ("locks.url", "locks.hive", "locks.plan", "locks.backends", "locks.connect"),
    "locks.statements": ("locks.url", "locks.backends", "locks.connect"),
    "cli": ("operators", "triggers", "sensors", "callbacks"),
}
"""Rooms that could reach down to others by their place, and never do."""

MOST_LINES = 400
MOST_IN_ROOT = 13

TWICE = {
    "Record": "what a backend keeps of a request: each backend's own, and none imports another",
    "State": "how far a request is, in its backend's record",
}
"""Names that more than one class has, and why."""

TELLS_TIME = {"locks/backends/memory/entry.py"}
"""Its store is the process itself, so that the process's clock is the store's."""

CLOCKS = {(module, call) for module in ("datetime", "date") for call in ("now", "utcnow", "today")}
CLOCKS |= {("time", "time"), ("time", "time_ns")}

PRIVATE = ("execution_time", "jobs", "models", "serialization", "settings", "executors")
"""Parts of Airflow that it may change without notice, as is everything that starts with an underscore."""

ALLOWED = {
    "compat.py": "what has moved from one Airflow to the next",
    "comms.py": "the line from a task, a trigger or a callback to Airflow",
    "ui/access.py": "the page runs in the API server, whose permissions, connections and runs nothing public gives",
}
"""Who may touch them all the same: one module for each side of Airflow, and why."""


REACHES_IN = {
    "comms.py": ALLOWED["comms.py"],
    "ui/access.py": ALLOWED["ui/access.py"],
    "work/spark_job.py": "what SparkSubmitOperator and its hook know of a job is public nowhere",
    "operators/spark_submit.py": "the same",
    "work/jobs/resumable.py": "how LivyOperator waits is public nowhere",
    "spark/driver.py": "what Spark's session knows of its metastore, it tells only in its JVM",
    "spark/jvm.py": "the same of its plans",
    "spark/driver_side.py": "PySpark gives its objects in the JVM by private attributes",
    "spark/jvm_threads.py": "only py4j's client knows the connection of a thread",
    "spark/connect.py": "the client of Spark Connect runs all plans by two private methods",
    "spark/statements.py": "the same",
    "spark/interception.py": "writers and catalogs of PySpark do not tell their DataFrame or session",
    "locks/backends/zookeeper/session.py": "kazoo's client can neither be told to give up a session nor to send bytes",
}
"""Which modules use attributes that start with an underscore of what others have made, and why."""

DOCUMENTED = {"_replace", "_asdict", "_make", "_fields", "_mapping", "_continue"}
"""Public all the same: of named tuples, of SQLAlchemy's rows, and of Kubernetes' lists, for a word of Python's."""


@cache
def modules(*parts: str) -> list[str]:
    root = PACKAGE.joinpath(*parts)
    found = root.rglob("*.py") if root.is_dir() else [root] if root.exists() else []
    return sorted(str(path.relative_to(PACKAGE)) for path in found)


@cache
def nodes(module: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse((PACKAGE / module).read_text())))


def imports(module: str) -> Iterator[str]:
    """The dotted names of the imports: anywhere in the file, and also those for typing only."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: write the import in full, so that its layer shows"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def dotted(module: str) -> str:
    """``locks.model`` for ``locks/model/__init__.py``, without the package's own name; that itself is empty."""
    return module.removesuffix(".py").replace("/", ".").removesuffix("__init__").removesuffix(".")


ALL = {dotted(module): module for module in modules()}


def own_imports(module: str) -> set[str]:
    """The modules of this package that *module* imports."""
    found = set()
    for name in imports(module):
        top, *parts = name.split(".")
        if top == PACKAGE.name:
            while ".".join(parts) not in ALL:
                parts.pop()
            found.add(".".join(parts))
    return found - {dotted(module)}


def room(name: str) -> str:
    """The room of the module *name*."""
    parts = name.split(".")
    heads = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(head for head in heads if head in ROOMS)


@pytest.mark.parametrize("name", ALL)
def test_a_module_has_its_room(name: str) -> None:
    try:
        found = room(name)
    except StopIteration:
        pytest.fail(f"{name} has no place in ROOMS")
    # Below ``locks`` each module is placed by itself: only the public names are its own.
    assert found != "locks" or name == "locks", f"{name} has no place in ROOMS"


@pytest.mark.parametrize("name", ALL)
def test_imports_only_go_downwards(name: str) -> None:
    order = list(ROOMS)
    own = room(name)
    for other in own_imports(ALL[name]):
        assert order.index(room(other)) <= order.index(own), f"{name} imports {other}, which lies above it"
        assert room(other) not in APART.get(own, ()), f"{name} imports {other}, of which {own} knows nothing"


def test_no_imports_go_round_in_circles() -> None:
    circles = code.circles({name: own_imports(module) for name, module in ALL.items()})
    assert not circles, "these modules import one another"


def test_no_two_classes_have_one_name() -> None:
    twice = {name: where for name, where in code.twice(code.modules(PACKAGE.parent)).items() if name not in TWICE}
    assert not twice, "one of them wants another name"


@pytest.mark.parametrize("place", ["airflow_hivelock", "tests", "dags_examples"])
def test_a_file_is_short_enough_to_be_read(place: str) -> None:
    long = {
        str(file): lines for file in PACKAGE.with_name(place).rglob("*.py") if (lines := code.lines(file)) > MOST_LINES
    }
    assert not long, "split it by its nouns"


def test_the_root_holds_few_modules() -> None:
    root = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert len(root) <= MOST_IN_ROOT, f"{root}: a new module belongs into a room"


@pytest.mark.parametrize("module", modules("locks", "backends"))
def test_backends_never_import_one_another(module: str) -> None:
    own = module.split("/")[2].removesuffix(".py")
    for name in own_imports(module):
        assert not name.startswith("locks.backends.") or name.split(".")[2] == own, f"{module} imports {name}"


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
    for node in nodes(module):
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


@cache
def own_names(module: str) -> set[str]:
    """The names that a module defines: functions, classes, variables, and attributes of ``self``."""
    found = set()
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.expr) -> bool:
    return ast.unparse(node) in ("self", "cls", "super()")


def reached(module: str) -> Iterator[str]:
    """Attributes with an underscore that the module cannot have defined; those of ``self`` may come from a base."""
    own, inherited = own_names(module), set().union(*map(own_names, modules()))
    attributes = (node for node in nodes(module) if isinstance(node, ast.Attribute))
    for node in attributes:
        if not node.attr.startswith("_") or node.attr.endswith("__") or node.attr in DOCUMENTED:
            continue
        if node.attr not in (inherited if is_self(node.value) else own):
            yield f"{module}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("module", [name for name in modules() if name not in REACHES_IN])
def test_only_named_modules_reach_into_what_others_have_made(module: str) -> None:
    assert not list(reached(module))


@pytest.mark.parametrize("module", [name for name in REACHES_IN if name not in ALLOWED])
def test_a_module_that_reaches_into_nothing_is_not_named(module: str) -> None:
    assert list(reached(module))


def test_the_rules_are_about_something() -> None:
    rooms = {room(name) for name in ALL}
    assert rooms == set(ROOMS), "a room without a module"
    assert all(set(names) <= rooms for names in (APART, *APART.values()))
