"""The wheels: this version, and two versions after it that exist as patches only."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support import programs

REPOSITORY = Path(__file__).parents[3]
BACKENDS = "airflow_hivelock/locks/backends"

Patch = tuple[tuple[str, str, str], ...]

NEXT: Patch = (
    ("airflow_hivelock/__init__.py", '__version__ = "0.1.0"', '__version__ = "0.2.0"'),
    ("airflow_hivelock/locks/formats.py", "\nFORMAT = 5\n", "\nFORMAT = 6\n"),
    # A field of records in ZooKeeper, and a column with a migration in databases.
    (f"{BACKENDS}/zookeeper/record.py", "    old_turn: int = 0\n", '    old_turn: int = 0\n    colour: str = ""\n'),
    (f"{BACKENDS}/zookeeper/record.py", '    *("share", ', '    *("share", "colour", '),
    (
        f"{BACKENDS}/zookeeper/start.py",
        "        named=request.named,\n",
        '        named=request.named,\n        colour="red",\n',
    ),
    (
        f"{BACKENDS}/database/record.py",
        "    more: str | None = None\n",
        "    more: str | None = None\n    colour: str | None = None\n",
    ),
    (
        f"{BACKENDS}/database/request.py",
        "        named=request.named,\n",
        '        named=request.named,\n        colour="red",\n',
    ),
    (
        f"{BACKENDS}/database/migrations.py",
        "STEPS: Mapping[int, Step] = {4: _stamps, 5: _groups}\n",
        "STEPS: Mapping[int, Step] = {4: _stamps, 5: _groups, 6: lambda c, t: _add(c, t, t.request.name, t.request.c.colour)}\n",
    ),
    # An argument of a trigger.
    (
        "airflow_hivelock/triggers/lock.py",
        '        warning: str = "",\n',
        '        warning: str = "",\n        colour: str = "",\n',
    ),
    (
        "airflow_hivelock/triggers/lock.py",
        "        self.warning = warning\n",
        "        self.warning = warning\n        self.colour = colour\n",
    ),
    (
        "airflow_hivelock/triggers/lock.py",
        '            "warning": self.warning,\n',
        '            "warning": self.warning,\n            "colour": self.colour or "red",\n',
    ),
    # Two numbers of rules that two versions may have differently.
    (f"{BACKENDS}/database/candidate.py", "DEAD_US = 30_000_000", "DEAD_US = 25_000_000"),
    (f"{BACKENDS}/zookeeper/store.py", "AT_ONCE = 5", "AT_ONCE = 3"),
)
"""An earlier version can run beside it: the lowest reader stays."""

LATER: Patch = (
    ("airflow_hivelock/__init__.py", '__version__ = "0.2.0"', '__version__ = "0.3.0"'),
    ("airflow_hivelock/locks/formats.py", "\nFORMAT = 6\n", "\nFORMAT = 7\n"),
    ("airflow_hivelock/locks/formats.py", "\nMIN_READER = 5\n", "\nMIN_READER = 7\n"),
    ("airflow_hivelock/locks/queueing.py", "def conflict(", "RULE = 7\n\n\ndef conflict("),
)
"""No earlier version can run beside it: a rule has changed."""

VERSIONS: dict[str, tuple[Patch, ...]] = {"0.1.0": (), "0.2.0": (NEXT,), "0.3.0": (NEXT, LATER)}


def built(to: Path) -> dict[str, Path]:
    """Build the wheels and install each in a folder of its own, by version."""
    found = {}
    for version, patches in VERSIONS.items():
        source, target = to / f"source-{version}", to / version
        shutil.copytree(REPOSITORY / "airflow_hivelock", source / "airflow_hivelock")
        for path in REPOSITORY.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy(path, source)
        for file, old, new in (change for patch in patches for change in patch):
            text = (source / file).read_text()
            assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times: correct the patch"
            (source / file).write_text(text.replace(old, new))
        _run(source, "build", "--wheel", "--no-isolation", "--outdir", str(to / f"wheel-{version}"))
        (wheel,) = (to / f"wheel-{version}").glob("*.whl")
        assert f"-{version}-" in wheel.name, wheel.name
        _run(to, "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel))
        found[version] = target
    return found


def _run(cwd: Path, *arguments: str) -> None:
    programs.run([sys.executable, "-m", *arguments], cwd=cwd)
