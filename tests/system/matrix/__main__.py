"""``python -m tests.system.matrix [--full] [CELL…]``, a cell being ``PYTHON:AIRFLOW``: ``3.12:3.3.2``, ``3.11:3.1.8:lowest``.

An environment is made below a temporary directory, tried (:mod:`.probe`, then the tests that need no servers) and
deleted before the next. ``lowest`` takes the lowest version that pyproject.toml allows of everything that it names.
At the end it prints the table of docs/compatibility.md; with all cells (``--full``), the table is written there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support import documented

ROOT = Path(__file__).parents[3]
CELLS = (
    *(f"{python}:{airflow}" for airflow in ("3.3.2", "3.2.2", "3.1.8") for python in ("3.11", "3.12", "3.13")),
    "3.11:3.1.8:lowest",
)
FEW = ("3.13:3.3.2", "3.12:3.2.2", "3.11:3.1.8", "3.11:3.1.8:lowest")
OLDER = ROOT / "tests/system/matrix/older.txt"
"""What Airflow 3.2 and 3.1 cannot do with, and do not say."""

EXTRAS = ("postgres", "mysql", "metastore", "hiveserver2")
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
TESTS = (
    *("-W", "default", "-n", "2", "--dist", "loadfile", "-m", "not integration and not airflow and not security"),
    *("tests/unit", "tests/airflow"),
)
INSTALL_S, TESTS_S = 1800, 1800
HEAD = (
    *("Python", "Airflow", "dependencies"),
    *("installs", "`pip check`", "imports, provider, page, DAGs", "tests"),
)


@dataclass(frozen=True)
class Cell:
    """What one environment is made of."""

    python: str
    airflow: str
    lowest: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises ValueError: not ``PYTHON:AIRFLOW`` or ``PYTHON:AIRFLOW:lowest``."""
        if not (match := re.fullmatch(r"(3\.\d+):(\d[\w.]*)(:lowest)?", text)):
            raise ValueError(f"{text!r} is not PYTHON:AIRFLOW or PYTHON:AIRFLOW:lowest")
        return cls(match[1], match[2], bool(match[3]))

    def __str__(self) -> str:
        return f"Python {self.python}, Airflow {self.airflow}" + ", lowest versions" * self.lowest


def requirements(cell: Cell) -> list[str]:
    """What pyproject.toml requires, with Airflow as the cell has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    by_name = {re.split(r"[\[<>=]", line)[0]: line for line in named}  # an extra may raise a bound: the last one counts
    others = [line for name, line in by_name.items() if name != "apache-airflow"]
    if cell.lowest:
        others = [re.sub(r">=([\w.]+).*", r"==\1", line) for line in others]
    return [f"apache-airflow=={cell.airflow}", *others]


def verdict(cell: Cell, environment: Path) -> dict[str, bool]:
    """Which steps there were, and whether each succeeded; none without such a Python."""
    python = environment / "bin" / "python"
    interpreter = shutil.which(f"python{cell.python}")
    if interpreter is None:
        print(f"--- {cell}: there is no python{cell.python}", flush=True)
        return {}
    pip = [str(python), "-m", "pip"]
    install, here = [*pip, "install", "--quiet"], []
    if uv := shutil.which("uv"):  # the same, and far quicker
        install, here = [uv, "pip", "install", "--quiet"], ["--python", str(python)]
    constraints = ["--constraint", str(OLDER)] if cell.airflow < "3.3" else []
    steps: dict[str, tuple[list[str], float]] = {
        "environment": ([interpreter, "-m", "venv", str(environment)], INSTALL_S),
        "installation": ([*install, *here, *constraints, *requirements(cell), *TOOLS], INSTALL_S),
        "the package": ([*install, *here, "--no-deps", "--editable", str(ROOT)], INSTALL_S),
        "pip check": ([*pip, "check"], INSTALL_S),
        "probe": ([str(python), "-m", "tests.system.matrix.probe"], TESTS_S),
        "tests": ([str(python), "-m", "pytest", "-q", *TESTS], TESTS_S),
    }
    succeeded: dict[str, bool] = {}
    for name, (command, timeout_s) in steps.items():
        print(f"--- {cell}: {name}", flush=True)
        done = subprocess.run(command, cwd=ROOT, timeout=timeout_s, check=False)
        succeeded[name] = not done.returncode
        if done.returncode and name in ("environment", "installation", "the package"):
            break
    return succeeded


def row(cell: Cell, succeeded: dict[str, bool]) -> tuple[str, ...]:
    """The cell in the table; a dash for what was not tried."""
    constraints = "as in `older.txt`" if cell.airflow < "3.3" else "newest"
    marks = {name: "✓" if well else "✗" for name, well in succeeded.items()}
    checked = (marks.get(name, "–") for name in ("installation", "pip check", "probe", "tests"))
    return cell.python, cell.airflow, "lowest" if cell.lowest else constraints, *checked


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.matrix", description=__doc__)
    parser.add_argument("cells", nargs="*", default=FEW)
    parser.add_argument("--full", action="store_true", help="all of them")
    arguments = parser.parse_args()
    found: dict[Cell, dict[str, bool]] = {}
    for cell in map(Cell.parse, CELLS if arguments.full else arguments.cells):
        with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
            found[cell] = verdict(cell, Path(scratch, "environment"))
        print(f"=== {' | '.join(row(cell, found[cell]))}", flush=True)
    table = documented.table(HEAD, (row(cell, steps) for cell, steps in found.items()))
    print(table)
    if arguments.full:
        documented.write("compatibility.md", "make matrix FULL=1", table)
    return int(not all(steps and all(steps.values()) for steps in found.values()))


if __name__ == "__main__":
    sys.exit(main())
