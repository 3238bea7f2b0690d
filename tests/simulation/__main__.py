"""Run the simulation: ``python -m tests.simulation [--seed N] [--seconds S] [--runs M]``. Exit code 1: a promise broke.

With ``--mutations`` each rule of the protocol is taken away in turn, and looked for by chance for so many seconds at most.
Exit code 1: one was not missed.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback

from tests.simulation.mutations import MUTATIONS
from tests.simulation.search import by_chance, by_script
from tests.simulation.world import Outcome, simulate

PROGRESS_S = 10.0
MOST_SAID = 110


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first run; the next ones follow it (default: chance)")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long (default: 60)")
    parser.add_argument("--runs", type=int, help="stop after so many runs")
    parser.add_argument("--trace", type=int, default=60, help="how many of the last lines of a failing run to print")
    parser.add_argument(
        "--mutations", nargs="*", metavar="NAME", help="look for these rules' absence, or for every one's"
    )
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    print(f"from seed {seed}", flush=True)
    if given.mutations is not None:
        return search(given.mutations or list(MUTATIONS), seed, given.seconds)
    began = shown = time.monotonic()
    runs = grants = leases = steps = 0
    while given.runs is None or runs < given.runs:
        outcome = simulate(seed + runs)
        runs += 1
        grants += outcome.grants
        leases += outcome.leases
        steps += outcome.steps
        now = time.monotonic()
        if outcome.failure is not None:
            report(outcome, given.trace)
            return 1
        if now > shown + PROGRESS_S or now > began + given.seconds or runs == given.runs:
            shown = now
            rate = leases / (now - began)
            print(
                f"{now - began:6.0f} s: {runs:,} runs, {leases:,} acquisitions ({grants:,} grants, the others taken over), "
                f"{steps:,} steps; {rate:,.0f} acquisitions/s",
                flush=True,
            )
        if now > began + given.seconds:
            break
    return 0


def search(names: list[str], seed: int, seconds: float) -> int:
    """Print a table: what notices that a rule is missing, and after how many runs and seconds of a processor."""
    print(f"{'without the rule':<46} {'by script':<10} {'by chance, after':<22} {'seed':>10}  what breaks")
    missed = 0
    for name in names:
        script, found = by_script(MUTATIONS[name]), by_chance(MUTATIONS[name], seed, seconds=seconds)
        missed += found.failure is None
        said = {True: "yes", False: "NO", None: "none"}[script]
        after = f"{found.runs:>6} runs, {found.seconds:>6.1f} s"
        what = "NOTHING" if found.failure is None else f"{type(found.failure).__name__}: {found.failure}"[:MOST_SAID]
        print(f"{name:<46} {said:<10} {after:<22} {found.seed:>10}  {what}", flush=True)
    print(f"{len(names) - missed} of {len(names)} by chance")
    return 1 if missed else 0


def report(outcome: Outcome, lines: int) -> None:
    """Print what broke, the end of the history, and how to see it again."""
    for now_ms, who, what in outcome.trace[-lines:]:
        print(f"{now_ms:>8} {who:<14} {what}")
    if outcome.failure is not None:
        traceback.print_exception(outcome.failure, file=sys.stdout)
    print(f"seed {outcome.seed} breaks; again: python -m tests.simulation --seed {outcome.seed} --runs 1")


if __name__ == "__main__":
    sys.exit(main())
