"""``python -m tests.hives [--tries 5] [HIVE…]``: tries every Hive, and prints the table of docs/compatibility.md.

With all of them, and 20 tries, the table is written there. Fails when a cell does.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import documented, variants
from tests.system.race.sparks import GUARD

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[2]
CELL_S = 1800.0
FULL_TRIES = 20

BUNDLED = "2.3.10"
"""The Hive in PySpark's jars."""

HIVES = (BUNDLED, "3.1.3", "4.0.1", "4.1.0", "4.2.1")
STORES = ("ZooKeeper", "metastore")
WITH_SERVER = (BUNDLED, "3.1.3", "4.0.1")
"""Of which there is a HiveServer2."""

COLUMNS = ("conformance", "interop, both ways", "statements", "two Spark jobs overwrite one partition: no lock, ours")

BOTH_WAYS = (
    *("test_lock_manager", "test_hive_races", "test_differential"),
    *(f"test_zookeeper_{of}" for of in ("protocol", "namespace", "busy")),
)
NO_SERVER = "✗ a"
NO_CLIENT = "✗ b"
NO_PART = "c"
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Said:
    """The contents of a cell, and whether they are right."""

    text: str
    good: bool = True


def run(hive: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return variants.run("HIVE", None if hive == BUNDLED else hive, *arguments, timeout_s=CELL_S)


def tests(hive: str, *arguments: str) -> Said:
    """Whether all tests passed, and how many do not hold for that Hive."""
    done = run(hive, "pytest", "-q", "-n", "2", "--dist", "loadfile", *arguments)
    if done.returncode:
        return Said("✗", good=False)
    left_out = re.search(r"(\d+) skipped", done.stdout)
    return Said(f"✓ but {left_out[1]}" if left_out else "✓")


def conformance(hive: str, store: str, tries: int) -> Said:
    if store == "metastore":
        return tests(hive, "tests/backends/test_metastore.py", "-k", "TestMetastore")
    if hive != BUNDLED:
        return Said(NO_PART)
    return tests(hive, "tests/backends/test_conformance.py", "-k", "TestZooKeeper")


def interop(hive: str, store: str, tries: int) -> Said:
    if store == "metastore":
        files = (f"tests/backends/test_metastore{of}.py" for of in ("", "_faults", "_foreign"))
        return tests(hive, *files, "-k", "not TestMetastore")
    with_its_driver = ("test_hive", "test_show_locks") if hive == BUNDLED else ()
    with_its_server = ("test_hiveserver2",) if hive in WITH_SERVER else ()
    return tests(hive, *(f"tests/backends/{name}.py" for name in (*BOTH_WAYS, *with_its_driver, *with_its_server)))


def statements(hive: str, store: str, tries: int) -> Said:
    if hive not in WITH_SERVER:
        return Said(NO_SERVER)
    return tests(hive, f"tests/backends/{'test_txn' if store == 'metastore' else 'test_sql'}.py")


def race(hive: str, store: str, tries: int) -> Said:
    if hive > "4.1.0":
        return Said(NO_CLIENT)
    if not tries:
        return Said(NOT_TRIED)
    options = ["--metastore"] if store == "metastore" else []
    done = run(hive, "tests.system.race", "--first", "--tries", str(tries), *options)
    harmed = re.findall(r"(\d+/\d+)(?: \([^)]*\))?, [\d.]+ s", done.stdout)
    said = Said(f"{'✗' if done.returncode else '✓'} harmed {', '.join(harmed)}", not done.returncode)
    if store != "metastore":
        return said
    guard = tests(hive, "tests/system/race/test_race.py", "-k", GUARD)
    return Said(f"{said.text}; `Guard.overwrite` {guard.text}", said.good and guard.good)


def row(hive: str, store: str, tries: int) -> tuple[Said, ...]:
    return tuple(column(hive, store, tries) for column in (conformance, interop, statements, race))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hives", description=__doc__)
    parser.add_argument("hives", nargs="*", default=HIVES, metavar="HIVE")
    parser.add_argument("--tries", type=int, default=FULL_TRIES, help="of each race, 0 for none; default: %(default)s")
    arguments = parser.parse_args()
    found = {(hive, store): row(hive, store, arguments.tries) for hive in arguments.hives for store in STORES}
    lines = ((hive, store, *(said.text for said in cells)) for (hive, store), cells in found.items())
    table = documented.table(["Hive", "locks in", *COLUMNS], lines)
    print(table)
    if tuple(arguments.hives) == HIVES and arguments.tries == FULL_TRIES:
        documented.write("compatibility.md", "make test-hives FULL=1", table)
    return int(not all(said.good for cells in found.values() for said in cells))


if __name__ == "__main__":
    sys.exit(main())
