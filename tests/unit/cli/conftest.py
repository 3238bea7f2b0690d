"""A lock store in memory, and the command line on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.cli.command import main
from airflow_hivelock.locks import LockManager, connect

if TYPE_CHECKING:
    from tests.unit.cli.running import Run


_numbers = itertools.count()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A separate lock store, named to ``hivelock`` in the environment."""
    url = f"memory://cli-{next(_numbers)}"
    monkeypatch.setenv("AIRFLOW_HIVELOCK_URL", url)
    return url


@pytest.fixture
def manager(url: str) -> LockManager:
    return connect(url)


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: str) -> tuple[int, str, str]:
        try:
            code = main(["--user", "ann", *args])
        except SystemExit as end:  # argparse's own
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run
