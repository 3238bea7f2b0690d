"""``python -m tests.system.race.sparks [--tries 20] [SPARK…]``: tries every Spark, and prints the table of docs/compatibility.md.

With all of them, and 20 tries, the table is written there. Fails when a cell does.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import documented
from tests.system.race.scenario import SCENARIOS
from tests.system.race.spark import ROOT

CELL_S = 3600.0
FULL_TRIES = 20

SPARKS = ("3.5", "4.0", "4.3")
BUNDLED = "4.3"
"""The one beside Airflow; each of the others has an environment of its own."""

COLUMNS = (
    *(f"{scenario.name}: no lock, ours" for scenario in SCENARIOS),
    "the operator, by real Airflow",
    "`Guard.overwrite`",
)
OPERATOR = "zookeeper or two_partitions"
GUARD = "publish_over_a_later_one or everybody_reads or without_the_guard"


def run(spark: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A module of Python's, with that Spark; what it says goes to stderr as well, all of it where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK"}
    if spark != BUNDLED:
        environment["SPARK"] = spark
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=CELL_S,
        check=False,
    )
    said = done.stdout if done.returncode else done.stdout[-2000:]
    print(spark, *arguments, said, sep="\n", file=sys.stderr, flush=True)
    return done


def version(spark: str) -> str:
    """Which one it is, as it says itself."""
    python = Path(sys.executable) if spark == BUNDLED else ROOT / f".venv-spark-{spark}" / "bin" / "python"
    said = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=CELL_S,
        check=True,
    )
    return said.stdout.strip()


def races(spark: str, tries: int) -> list[str]:
    """How many tries were harmed, without locks and with ours."""
    done = run(spark, "tests.system.race", "--tries", str(tries))
    mark = "✗" if done.returncode else "✓"
    found = [re.findall(rf"^\| {scenario.name} \|.*$", done.stdout, re.MULTILINE) for scenario in SCENARIOS]
    return [f"{mark} {', '.join(re.findall(r'[0-9]+/[0-9]+', row))}" for (row,) in (rows or [""] for rows in found)]


def tests(spark: str, *arguments: str) -> str:
    """Whether all of them passed, and how many."""
    done = run(spark, "pytest", "-q", "--timeout", "3600", *arguments)
    passed = re.search(r"(\d+) passed", done.stdout)
    return f"✓ {passed[1]} tests" if passed and not done.returncode else "✗"


def row(spark: str, tries: int) -> list[str]:
    return [
        version(spark),
        *races(spark, tries),
        tests(spark, "-m", "cluster", "tests/system/race/test_two_dags.py", "-k", OPERATOR),
        tests(spark, "tests/system/race/test_race.py", "-k", GUARD),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.race.sparks", description=__doc__)
    parser.add_argument("sparks", nargs="*", default=SPARKS, metavar="SPARK")
    parser.add_argument("--tries", type=int, default=FULL_TRIES, help="of each race; default: %(default)s")
    arguments = parser.parse_args()
    rows = [("Spark", *COLUMNS), ("---",) * (1 + len(COLUMNS))]
    rows += (tuple(row(spark, arguments.tries)) for spark in arguments.sparks)
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    print(table)
    if tuple(arguments.sparks) == SPARKS and arguments.tries == FULL_TRIES:
        documented.write("compatibility.md", "make test-spark FULL=1", table)
    return int("✗" in table)


if __name__ == "__main__":
    sys.exit(main())
