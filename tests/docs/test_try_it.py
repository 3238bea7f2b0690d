"""The ZooKeeper that README starts in one line, to try it out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import StoreUnavailable, connect
from tests.docs.blocks import PROJECT
from tests.support.servers import free_port

if TYPE_CHECKING:
    from airflow_hivelock.locks import Lease

DEADLINE_S = 60.0


@pytest.mark.integration
def test_a_lock_is_taken_in_the_zookeeper_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"^ *(java .* 2181 /tmp/zookeeper)$", (PROJECT / "README.md").read_text(), re.MULTILINE)
    assert found
    port = free_port()
    line = found[1].replace("2181 /tmp/zookeeper", f"{port} {tmp_path}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(["bash", "-c", f"exec {line}"], stdout=log, stderr=log)
    try:
        assert _locked(f"zookeeper://127.0.0.1:{port}/hive_zookeeper_namespace").locks
    finally:
        server.terminate()
        server.wait(DEADLINE_S)


def _locked(url: str) -> Lease:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with connect(url) as manager:
                return manager.acquire(owner="job", writes=["dw.t"])
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
