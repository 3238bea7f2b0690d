"""The guide to tests of a DAG, as a reader follows it: in a new folder, with a new database of Airflow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PROJECT, Kind, blocks

PAGE = "docs/guides/test-a-dag.md"


@pytest.mark.integration
def test_the_tests_of_a_dag_pass_in_a_new_folder(tmp_path: Path) -> None:
    (commands,) = (block.text for block in blocks(Kind.SHELL) if block.page == PAGE)
    (dag,) = (block.text for block in blocks(Kind.DAG) if block.page == PAGE)
    (tmp_path / "test_tested.py").write_text(dag, encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTEST"))}
    done = subprocess.run(
        ["timeout", "240", "bash", "-ec", f"{commands}\npytest"],
        cwd=tmp_path,
        env=own
        | {
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "PATH": f"{Path(sys.executable).parent}:{own['PATH']}",
            "PYTHONPATH": str(PROJECT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
