"""``python -m tests.fuzz --seconds 600 [target …]``: each target gets its share of the time, by each engine there is.

What breaks a promise is written to ``fuzz-output/``, as small as the engine makes it; keep it in the corpus once it is
understood. The same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, seed, settings

if TYPE_CHECKING:
    from tests.fuzz.target import Target

OUTPUT = Path("fuzz-output")
MEMORY_MB = 3_000
BATCH = 50


def by_hypothesis(target: Target, seconds: float, first: int) -> tuple[int, list[bytes]]:
    """How many inputs were run, and the smallest of each kind that broke a promise; the corpus first."""
    deadline, ran, number = time.monotonic() + seconds, 0, first
    broken: dict[str, bytes] = {}
    last = b""

    def run(data: bytes) -> None:
        nonlocal ran, last
        ran, last = ran + 1, data
        target.check(data)

    for data in target.corpus():
        try:
            run(data)
        except Exception as error:  # noqa: BLE001 - anything may be raised
            broken[_place(error)] = data
            print(f"BROKEN {target.name} by its corpus at {_place(error)}\n  input {data[:300]!r}", flush=True)
    while time.monotonic() < deadline:
        fuzz = given(target.inputs)(run)
        options = settings(
            max_examples=BATCH,
            database=None,
            deadline=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            print_blob=False,
        )
        try:
            seed(number)(options(fuzz))()
        except Exception as error:  # noqa: BLE001 - anything may be raised
            place = _place(error)
            if place not in broken:
                broken[place] = last
                print(f"BROKEN {target.name} seed={number} at {place}\n  input {last[:300]!r}", flush=True)
                traceback.print_tb(error.__traceback__, limit=-5, file=sys.stdout)
                print(f"  {type(error).__name__}: {str(error)[:300]}", flush=True)
                _keep(target.name, last)
        number += 1
    print(
        f"{target.name}: {ran} inputs by hypothesis, seeds {first} to {number - 1}, {len(broken)} broke it", flush=True
    )
    return ran, list(broken.values())


def by_atheris(name: str, seconds: float, first: int) -> int:
    """The same by coverage, in a process of its own, for libFuzzer ends its process."""
    corpus = OUTPUT / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    kept = Path(__file__).parent / "corpus" / name
    kept.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(corpus), str(kept)]
    limits = [
        f"-max_total_time={round(seconds)}",
        f"-seed={1 + first % 2**31}",
        f"-rss_limit_mb={MEMORY_MB}",
        "-timeout=60",
    ]
    limits += ["-print_final_stats=1", "-max_len=9999", f"-artifact_prefix={OUTPUT}/{name}-", "-verbosity=1"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, timeout=seconds + 600, check=False)
    said = done.stdout + done.stderr
    ran = next(
        (line.rpartition(":")[2].strip() for line in said.splitlines() if "number_of_executed_units" in line), "?"
    )
    size = len(list(corpus.iterdir()))
    print(
        f"{name}: {ran} inputs by atheris, seed {1 + first % 2**31}, corpus {size}, exit {done.returncode}", flush=True
    )
    if done.returncode:
        print("\n".join(said.splitlines()[-60:]), flush=True)
    return done.returncode


def _place(error: BaseException) -> str:
    """The line of the failure, to distinguish bugs."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "airflow_hivelock" in frame.filename] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {type(error).__name__} {str(error)[:60]!r}"


def _keep(name: str, data: bytes) -> None:
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="by default all")
    parser.add_argument("--seconds", type=float, default=300.0, help="in all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--engine", choices=("hypothesis", "atheris", "both"), default="both")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB * 2**20, MEMORY_MB * 2**20))
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="fuzz-"))
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "CRITICAL")
    from tests.fuzz.targets import TARGETS

    names = args.targets or list(TARGETS)
    guided = args.engine != "hypothesis" and importlib.util.find_spec("atheris") is not None
    if args.engine == "atheris" and not guided:
        parser.error("atheris is not installed: pip install --group fuzz")
    engines = (args.engine != "atheris") + guided
    share_s = args.seconds / len(names) / engines
    failed = 0
    for number, name in enumerate(names):
        first = args.seed + 1_000_000 * number
        if args.engine != "atheris":
            failed += bool(by_hypothesis(TARGETS[name], share_s, first)[1])
        if guided:
            failed += bool(by_atheris(name, share_s, first))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
