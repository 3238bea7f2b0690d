"""Try every Spark: ``python -m tests.system.race.sparks [--tries 20] [SPARK…]``.

It prints the table of docs/compatibility.md. With all Sparks and 20 tries it writes the table there. It fails if a cell
of the table fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.support import documented, variants
from tests.system.race.scenario import SCENARIOS
from tests.system.race.spark import ROOT

CELL_S = 3600.0
FULL_TRIES = 20

SPARKS = ("3.5", "4.0", "4.3")
BUNDLED = "4.3"
"""The Spark in Airflow's environment. Each of the others has its own environment."""

COLUMNS = (
    *(f"{scenario.name}: no lock, ours" for scenario in SCENARIOS),
    "the operator, by real Airflow",
    "`Guard.overwrite`",
)
OPERATOR = "zookeeper or two_partitions"
GUARD = "publish_over_a_later_one or everybody_reads or without_the_guard"


def run(spark: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return variants.run("SPARK", None if spark == BUNDLED else spark, *arguments, timeout_s=CELL_S)


def version(spark: str) -> str:
    """The full version of that Spark."""
    python = Path(sys.executable) if spark == BUNDLED else ROOT / f".venv-spark-{spark}" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=CELL_S,
        check=True,
    )
    return done.stdout.strip()


def races(spark: str, tries: int) -> list[str]:
    """For each race the harmful tries without locks and with ours."""
    done = run(spark, "tests.system.race", "--tries", str(tries))
    mark = "✗" if done.returncode else "✓"
    found = [re.findall(rf"^\| {scenario.name} \|.*$", done.stdout, re.MULTILINE) for scenario in SCENARIOS]
    return [f"{mark} {', '.join(re.findall(r'[0-9]+/[0-9]+', row))}" for (row,) in (rows or [""] for rows in found)]


def tests(spark: str, *arguments: str) -> str:
    """Whether all tests passed, and their number."""
    done = run(spark, "pytest", "-q", "--timeout", "3600", *arguments)
    passed = re.search(r"(\d+) passed", done.stdout)
    return f"✓ {passed[1]} tests" if passed and not done.returncode else "✗"


def row(spark: str, tries: int) -> list[str]:
    """The cells of that Spark."""
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
    table = documented.table(["Spark", *COLUMNS], (row(spark, arguments.tries) for spark in arguments.sparks))
    print(table)
    if tuple(arguments.sparks) == SPARKS and arguments.tries == FULL_TRIES:
        documented.write("compatibility.md", "make test-spark FULL=1", table)
    return int("✗" in table)


if __name__ == "__main__":
    sys.exit(main())
