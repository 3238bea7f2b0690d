"""What the built wheel tells an index and a user: its metadata, its links, its version and its types."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import airflow_hivelock
from tests.release import artefacts

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parents[2]
SOURCE = "https://github.com/airflow-hivelock/airflow-hivelock"
PLACES = ("Homepage", "Documentation", "Changelog", "Issues", "Security", "Source")

DAG = """
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_hivelock import HiveLockOperator, HiveLockSensor, HiveUnlockOperator, hive_lock, hold, release_locks
from airflow_hivelock.locks import Lease, connect

with DAG("delays", on_failure_callback=release_locks) as dag:
    lock = HiveLockOperator(
        task_id="lock", reads=["dw.flights/dt={{ ds }}"], writes=["dw.delays/dt={{ ds }}"], timeout=timedelta(hours=1)
    )
    unlock = HiveUnlockOperator(task_id="unlock").as_teardown(setups=lock)
    free = HiveLockSensor(task_id="free", reads=["dw.flights"])
    lock >> unlock
    with hive_lock(writes=["dw.delays"]):
        pass


def by_hand(url: str) -> str:
    with connect(url) as manager:
        lease: Lease = manager.acquire(owner="me", writes=["dw.delays"])
        manager.release(lease)
        return lease.id
"""
"""A user's DAG: strict mypy has nothing against it."""

WRONG = """
from airflow_hivelock.locks import connect

with connect("memory://") as manager:
    manager.acquire(owner=1, writes=["dw.delays"])
    number: int = manager.acquire(owner="me", writes=["dw.delays"])
"""
"""mypy sees both errors only if it reads the package's types."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The source archive and the wheel; two builds have the same bytes, or this fails."""
    # A folder of that name could be imported too.
    pytest.importorskip("build.env", reason="make matrix has no build")
    return artefacts.built_twice(ROOT, tmp_path_factory.mktemp("builds"))


@pytest.fixture(scope="module")
def wheel(built: list[Path]) -> Path:
    return artefacts.of(built[0].parent)[0]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(files.read(name).decode())


def test_an_index_is_told_who_what_and_where(metadata: Message) -> None:
    assert metadata["Author"] == "The airflow_hivelock authors"
    assert metadata["License-Expression"] == "Apache-2.0"
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert urls.keys() == set(PLACES)
    assert all(url.startswith(SOURCE) for url in urls.values())
    kinds = {line.partition(" :: ")[0] for line in metadata.get_all("Classifier", [])}
    assert kinds >= {"Development Status", "Framework", "Operating System", "Programming Language", "Topic", "Typing"}


def test_the_version_is_in_one_place(metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert metadata["Version"] == airflow_hivelock.__version__
    assert f"\n## [{airflow_hivelock.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_of_the_index_has_no_relative_link(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = set(re.findall(r"\]\(([^)\s]+)\)", text))
    tag = f"v{airflow_hivelock.__version__}"
    assert f"{SOURCE}/blob/{tag}/docs/promises.md#not-promised" in links
    assert f"{SOURCE}/raw/{tag}/docs/images/demo.png" in links
    assert {link for link in links if not link.startswith(("https://", "#"))} == set()


def test_each_link_of_the_index_is_a_file_here(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    paths = re.findall(rf"{re.escape(SOURCE)}/(?:blob|raw)/[^/]+/([^)#\s]+)", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert "airflow_hivelock/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"airflow_hivelock"}


def test_the_source_archive_builds_and_has_the_tests(built: list[Path]) -> None:
    with tarfile.open(artefacts.of(built[0].parent)[1]) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert names >= {"hatch_build.py", "tests/unit/test_package.py", "CHANGELOG.md", ".ci/run", "docs/README.md"}


def test_two_builds_that_differ_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(root: Path, to: Path) -> list[Path]:
        to.mkdir()
        (to / "it.whl").write_text(to.name)
        return [to / "it.whl"]

    monkeypatch.setattr(artefacts, "build", build)
    with pytest.raises(SystemExit, match=r"it\.whl differs between two builds"):
        artefacts.built_twice(ROOT, tmp_path)


def test_the_sums_are_as_sha256sum_reads_them(tmp_path: Path) -> None:
    (tmp_path / "it.whl").write_text("it")
    artefacts.write_sums(tmp_path)
    check = ["sha256sum", "--check", artefacts.SUMS]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, timeout=20, check=False).returncode == 0
    (tmp_path / "it.whl").write_text("other")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, timeout=20, check=False).returncode == 1


def test_the_bill_of_materials_has_the_version_and_no_path_of_the_machine() -> None:
    references = [{"type": "distribution", "url": "file:///home/me/it.whl"}, {"type": "website", "url": SOURCE}]
    bill = {"metadata": {"component": {}}, "components": [{"name": "it", "externalReferences": references}]}
    assert artefacts.with_version(bill, "1.2") == {
        "metadata": {"component": {"version": "1.2"}},
        "components": [{"name": "it", "externalReferences": references[1:]}],
    }


@pytest.mark.timeout(600)
def test_a_users_dag_passes_strict_mypy_and_errors_are_seen(
    wheel: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A user's mypy reads the types of the installed wheel, because it has py.typed."""
    python = artefacts.overlaid(wheel, tmp_path / "environment")
    cache = pytestconfig.cache.mkdir("mypy")
    assert checked(python, cache, tmp_path / "dag.py", DAG) == (0, "Success: no issues found in 1 source file\n")
    code, said = checked(python, cache, tmp_path / "wrong.py", WRONG)
    assert code == 1
    assert 'Argument "owner" to "acquire" of "LockManager" has incompatible type "int"' in said
    assert 'expression has type "Lease", variable has type "int"' in said


def checked(python: str, cache: Path, script: Path, text: str) -> tuple[int, str]:
    """What strict mypy says of *text*, away from this checkout and its settings.

    :param cache: where mypy keeps what it knows of Airflow, which takes most of the time, from one run to the next.
    """
    script.write_text(textwrap.dedent(text))
    own = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    options = ["--strict", "--cache-dir", str(cache), "--python-executable", python]
    mypy = [sys.executable, "-m", "mypy", *options, script.name]
    done = subprocess.run(mypy, cwd=script.parent, env=own, capture_output=True, text=True, timeout=500, check=False)
    return done.returncode, done.stdout + done.stderr
