"""Stand-ins for what the documents name: lock stores, programs, and an Airflow in this process."""

from __future__ import annotations

import importlib.abc
import inspect
import itertools
import json
import os
import re
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from kazoo.client import KazooClient

from airflow_hivelock.locks.backends.database.location import OPTIONS
from tests.airflow.conftest import database, manager, run  # noqa: F401 - fixtures
from tests.support.servers.jvm import write_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.support.servers import ZooKeeperServer

STAND_INS = Path(__file__).parent / "stand_ins"
"""Programs that the documents call and that are not ours: spark-submit, which here only succeeds, and the like."""

FOREIGN = tuple(
    f"airflow.providers.{name}"
    for name in ("amazon", "apache.hive", "apache.livy", "cncf", "common.sql.operators", "databricks", "google")
)
"""Providers that the documents import and nothing else here needs: their operators talk to servers."""

_OPTIONS = r"(?:\?(?P<options>[\w=&./%-]+))?"
_numbers = itertools.count()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """``hivelock`` and the stand-ins."""
    path = (str(STAND_INS), str(Path(sys.executable).parent), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))


class Foreign(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules for FOREIGN, with any operator in them, that takes whatever it is given and does nothing."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        foreign = any(f"{name}.".startswith(f"{each}.") for each in FOREIGN)
        return ModuleSpec(name, self, is_package=True) if foreign else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = partial(_operator, module.__name__)


def _operator(module: str, name: str) -> Any:
    from airflow.sdk import BaseOperator

    if not name.endswith("Operator"):
        raise AttributeError(name)

    def __init__(self: Any, **given: Any) -> None:
        ours = set(inspect.signature(BaseOperator).parameters)
        BaseOperator.__init__(self, **{key: value for key, value in given.items() if key in ours})
        vars(self).update((key, value) for key, value in given.items() if key not in ours)

    submitted_nothing = dict.fromkeys(("job_id", "operation", "pod", "pod_request_obj"))
    body = {"__module__": module, "__init__": __init__, "execute": lambda self, context: None, "hook": MagicMock()}
    body |= submitted_nothing
    kind: Any = type(BaseOperator)
    made = sys.modules[module].__dict__[name] = kind(name, (BaseOperator,), body)
    return made


@pytest.fixture
def foreign_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand-ins for the operators of providers that talk to servers."""
    for name in list(sys.modules):
        if f"{name}.".startswith(tuple(f"{each}." for each in FOREIGN)):
            monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", [Foreign(), *sys.meta_path])
    yield
    for name in set(sys.modules) - before:
        if f"{name}.".startswith(tuple(f"{each}." for each in FOREIGN)):
            del sys.modules[name]


@pytest.fixture
def here(zookeeper: ZooKeeperServer, tmp_path: Path) -> Callable[[str], str]:
    """A text of the documents with the lock stores in it replaced by those of this test.

    ======================  ================================================================
    ``zookeeper://zk1…/n``  the session's ZooKeeper, a pair of namespaces on it, without locks
    ``postgresql://…``      SQLite, a file of this test's
    ``mysql://…``           the same
    ``sqlite:///…``         the same
    ``metastore://…``       the same: what only a Hive can answer is not in a block of code
    ``/etc/hive/conf``      a directory with a hive-site.xml that names that ZooKeeper
    ======================  ================================================================
    """
    number = next(_numbers)
    properties = {
        "hive.support.concurrency": "true",
        "hive.zookeeper.quorum": zookeeper.hosts,
        "hive.zookeeper.namespace": f"hive-docs-{number}",
        "hive.lock.sleep.between.retries": "5s",
        "hive.zookeeper.clean.extra.nodes": "true",
    }
    write_site(tmp_path / "hive-site.xml", properties)
    client = KazooClient(zookeeper.hosts)
    client.start()
    client.ensure_path(f"/hive-docs-{number}/default")  # as a Hive leaves it that has locked there
    client.stop()
    client.close()
    return partial(_here, zookeeper.hosts, number, tmp_path)


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

    text = text.replace("/etc/hive/conf", str(directory))
    text = re.sub(rf"zookeeper://(?P<login>[^@/\s\"']+@)?zk1[:,\w]*/\w+{_OPTIONS}", pair, text)
    return re.sub(rf"(postgresql|mysql|sqlite|metastore)://[^\s\"'?]+{_OPTIONS}", file, text)
