"""What the documents speak of, here: their lock stores, their programs, an Airflow in this process."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks.backends.database.location import OPTIONS
from tests.airflow.conftest import database, manager, run  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import ZooKeeperServer

STAND_INS = Path(__file__).parent / "stand_ins"
"""Programs that the documents call and that are not ours: spark-submit, which here only succeeds, and the like."""

_OPTIONS = r"(?:\?(?P<options>[\w=&./%-]+))?"
_numbers = itertools.count()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """``hivelock`` and the stand-ins."""
    path = (str(STAND_INS), str(Path(sys.executable).parent), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))


@pytest.fixture
def here(zookeeper: ZooKeeperServer, tmp_path: Path) -> Callable[[str], str]:
    """A text of the documents with the lock stores in it replaced by those of this test.

    ======================  ================================================================
    ``zookeeper://zk1…/n``  the session's ZooKeeper, an empty pair of namespaces on it
    ``postgresql://…``      SQLite, a file of this test's
    ``sqlite:///…``         the same
    ``metastore://…``       the same: what only a Hive can answer is not in a block of code
    ======================  ================================================================
    """
    return partial(_here, zookeeper.hosts, next(_numbers), tmp_path)


def _here(hosts: str, number: int, directory: Path, text: str) -> str:
    def pair(match: re.Match[str]) -> str:
        options = match["options"] or ""
        root = "" if "root=" in options else f"root=/hivelock-docs-{number}"
        return f"zookeeper://{match['login'] or ''}{hosts}/hive-docs-{number}?" + "&".join(
            filter(None, (options, root))
        )

    def file(match: re.Match[str]) -> str:
        ours = [option for option in (match["options"] or "").split("&") if option.partition("=")[0] in OPTIONS]
        return f"sqlite:///{directory}/leases.db?" + "&".join(ours)

    text = re.sub(rf"zookeeper://(?P<login>[^@/\s\"']+@)?zk1[:,\w]*/\w+{_OPTIONS}", pair, text)
    return re.sub(rf"(postgresql|sqlite|metastore)://[^\s\"'?]+{_OPTIONS}", file, text)
