"""The files of a release: a wheel, a source archive, a bill of materials and their checksums."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SUMS = "SHA256SUMS"
BUILD_S = 300


def version(root: Path) -> str:
    """The version in ``airflow_hivelock/__init__.py``."""
    (found,) = re.findall(
        r'^__version__ = "([^"]+)"', (root / "airflow_hivelock/__init__.py").read_text(), re.MULTILINE
    )
    return str(found)


def epoch(root: Path) -> str:
    """``SOURCE_DATE_EPOCH``: as it is set, or else the time of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    log = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    done = subprocess.run(log, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() or "1577836800"  # an unpacked source archive has no history


def build(root: Path, to: Path) -> list[Path]:
    """Build the source archive, and the wheel from it. Return both, sorted by name."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), str(root)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch(root)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        sys.exit(f"make release: no build\n{done.stdout}{done.stderr}")
    return sorted(to.iterdir())


def built_twice(root: Path, scratch: Path) -> list[Path]:
    """Build two times, and compare byte by byte.

    :raises SystemExit: a file differs, so that nobody else could build the same.
    """
    first, second = (build(root, scratch / name) for name in ("first", "second"))
    if [path.name for path in first] != [path.name for path in second]:
        sys.exit(f"make release: two builds have different files: {first}, {second}")
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            sys.exit(f"make release: {one.name} differs between two builds of one commit")
    return first


def of(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive in *folder*."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def overlaid(wheel: Path, environment: Path) -> str:
    """The Python of a new environment that has *wheel*, and all other libraries of this one."""
    site = environment / "wheel"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], timeout=BUILD_S, check=True)
    (packages,) = environment.glob("lib/*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "here.pth").write_text("\n".join([str(site), *libraries]))
    return str(environment / "bin" / "python")


def write_bill(python: str, root: Path, to: Path) -> None:
    """Write the software bill of materials (CycloneDX) of the environment of *python* to *to*.

    :raises SystemExit: it does not name this package and its libraries.
    """
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(root / "pyproject.toml")]
    command += ["--mc-type", "library", "--output-reproducible", "--of", "JSON", "--output-file", str(to), python]
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch(root)}
    subprocess.run(command, env=env, timeout=BUILD_S, check=True)
    bill = with_version(json.loads(to.read_text()), version(root))
    subject = bill["metadata"]["component"]["name"]  # this package; the components are its libraries
    if subject != "airflow-hivelock" or "kazoo" not in {part["name"] for part in bill["components"]}:
        sys.exit(f"make release: the bill of materials {to.name} does not name this package and kazoo")
    to.write_text(json.dumps(bill, indent=2) + "\n")


def with_version(bill: dict[str, Any], number: str) -> dict[str, Any]:
    """*bill* with this package's version, which pyproject.toml does not have, and without paths of this machine."""
    bill["metadata"]["component"]["version"] = number
    for part in bill["components"]:
        if "externalReferences" in part:
            part["externalReferences"] = [it for it in part["externalReferences"] if not it["url"].startswith("file:")]
    return bill


def write_sums(folder: Path) -> None:
    """Write the SHA-256 sums of all files in *folder*, as ``sha256sum --check`` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))
