"""``python -m tests.release [--full] [--to dist]``: build, check and try a release, and write what to publish.

A step that fails ends the run, and then the folder has no ``SHA256SUMS``. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.release import artefacts

ROOT = Path(__file__).parents[2]
INSTALL_S, TRY_S, DEMO_S = 1800, 600, 2400
TRIAL = Path(__file__).with_name("trial.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the folder; it is emptied first")
    parser.add_argument(
        "--full", action="store_true", help="also run the demo, with the wheel in place of the checkout"
    )
    parser.add_argument("--tag", help="the tag that is to be published: it must be v and the version")
    given = parser.parse_args()
    if given.tag not in (None, f"v{artefacts.version(ROOT)}"):
        sys.exit(f"make release: the tag is {given.tag}, and the version in __init__.py is {artefacts.version(ROOT)}")
    to: Path = given.to.resolve()
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="release-") as scratch:
        at = Path(scratch)
        print(f"--- two builds of version {artefacts.version(ROOT)}", flush=True)
        for built in artefacts.built_twice(ROOT, at):
            shutil.copy(built, to)
        print("--- twine check", flush=True)
        wheel, source = artefacts.of(to)
        run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)], TRY_S)
        print("--- an empty environment", flush=True)
        python = installed(wheel, at / "environment")
        run([python, "-m", "pip", "check"], TRY_S)
        print("--- the wheel, far from the checkout", flush=True)
        suite = shutil.copytree(ROOT / "tests" / "conformance", at / "conformance")
        run([python, str(shutil.copy(TRIAL, at / "trial.py")), str(suite)], TRY_S, cwd=at)
        print("--- the software bill of materials", flush=True)
        artefacts.write_bill(python, ROOT, to / f"{wheel.stem}.cdx.json")
    if given.full:
        print("--- the demo, with the wheel", flush=True)
        demo(wheel)
    artefacts.write_sums(to)
    print(f"\nto publish, in {to}:\n{(to / artefacts.SUMS).read_text()}")
    return 0


def run(command: list[str], timeout_s: float, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run *command*, and end this run if it fails."""
    try:
        subprocess.run(command, cwd=cwd, env=env or foreign(), timeout=timeout_s, check=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"make release: step failed with {error.returncode}: {' '.join(command)}")


def foreign() -> dict[str, str]:
    """The environment of this process, without the paths that lead to the checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def installed(wheel: Path, environment: Path) -> str:
    """The Python of a new environment with *wheel*, its dependencies and pytest."""
    run([sys.executable, "-m", "venv", str(environment)], TRY_S)
    python = str(environment / "bin" / "python")
    limits = ["--constraint", str(ROOT / "constraints.txt")]
    run([python, "-m", "pip", "install", "--quiet", *limits, str(wheel), "pytest"], INSTALL_S)
    return python


def demo(wheel: Path) -> None:
    """Run the main job with the package from *wheel*: the demo's own code is copied, and the package is not."""
    with tempfile.TemporaryDirectory(prefix="demo-") as scratch:
        at = Path(scratch)
        for folder in ("tests", "dags_examples"):
            shutil.copytree(ROOT / folder, at / folder)
        shutil.copy(ROOT / "pyproject.toml", at)
        python = artefacts.overlaid(wheel, at / "environment")
        for tool in Path(sys.executable).parent.iterdir():  # spark-submit, which the demo looks for beside its Python
            if not (beside := Path(python).with_name(tool.name)).exists():
                beside.symlink_to(tool)
        run([python, "-c", f"import airflow_hivelock as it; assert it.__file__.startswith({str(at)!r})"], TRY_S, at)
        run([python, "-m", "tests.system.demo"], DEMO_S, at)


if __name__ == "__main__":
    sys.exit(main())
