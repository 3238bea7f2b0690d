"""One acquire on a real ZooKeeper, followed through the package's files: ``python -m tests.structure.walk CASE CHECKOUT
HOSTS ANSWER``.

Every call of a function of the package is recorded, in all threads. A generator is recorded each time that it
continues. A *move* is a call from another file: directly, or through other code (Airflow, kazoo, ``sorted`` with a
key).

A process's first acquire also connects, and remembers what it finds. So both acquires of a process are recorded. Each
case has a process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.structure.code import PACKAGE
from tests.support.airflow_server.database import create_sqlite, sqlite_url
from tests.support.servers import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

WALK_S = 300.0


@dataclass(frozen=True)
class Way:
    """The path of one acquire.

    :param files: calls by file, in the order in which the files were reached.
    :param moves: calls from another file, by both files; "" for calls from outside the package.
    """

    what: str
    files: dict[str, int]
    moves: dict[str, int]


class Recorder:
    """Sees what runs meanwhile. Made before the threads that it is to see."""

    def __init__(self, package: Path) -> None:
        self.ways: list[Way] = []
        self._top = f"{package}{os.sep}"
        self._names: dict[str, str] = {}
        self._files: Counter[str] | None = None
        self._moves: Counter[str] = Counter()
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    @contextmanager
    def meanwhile(self, what: str) -> Iterator[None]:
        """Record a way of that name."""
        self._moves.clear()
        files: Counter[str] = Counter()
        self._files = files
        try:
            yield
        finally:
            self._files = None
            self.ways.append(Way(what, dict(files), dict(self._moves)))

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        files = self._files
        if files is None or event != "call" or not (name := self._name(frame)):
            return
        caller = frame.f_back
        while caller is not None and not self._name(caller):
            caller = caller.f_back
        origin = self._name(caller) if caller is not None else ""
        files[name] += 1
        if origin != name:
            self._moves[f"{origin} → {name}"] += 1

    def _name(self, frame: FrameType) -> str:
        """The file, below the package; "" for others'."""
        path = frame.f_code.co_filename
        if (name := self._names.get(path)) is None:
            name = self._names[path] = path.removeprefix(self._top) if path.startswith(self._top) else ""
        return name


def ways(checkout: Path) -> list[Way]:
    """The ways of one acquire through the package in *checkout*."""
    found = []
    with TemporaryDirectory(prefix="structure-") as scratch, ZooKeeperServer(Path(scratch)) as zookeeper:
        for case in CASES:
            answer = Path(scratch) / case
            command = [sys.executable, "-m", "tests.structure.walk", case, str(checkout), zookeeper.hosts, str(answer)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=WALK_S, check=False)
            if done.returncode:
                raise RuntimeError(f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
            found += [Way(**way) for way in json.loads(answer.read_text())]
    return found


def main(case: str, checkout: str, hosts: str, answer: str) -> None:
    sys.path.insert(0, checkout)
    recorder = Recorder(Path(checkout) / PACKAGE)
    CASES[case](recorder, hosts)
    sys.setprofile(None)
    Path(answer).write_text(json.dumps([asdict(way) for way in recorder.ways]))


def alone(recorder: Recorder, hosts: str) -> None:
    """``LockManager.acquire``, without Airflow."""
    from airflow_hivelock.locks import connect

    with recorder.meanwhile("connect, and manager.acquire for the first time"):
        manager = connect(f"zookeeper://{hosts}/hive-alone?root=/alone")
        lease = manager.acquire(owner="first", writes=["dw.delays/dt=2013-01-15"])
    manager.release(lease)
    with recorder.meanwhile("manager.acquire"):
        lease = manager.acquire(owner="second", writes=["dw.delays/dt=2013-01-16"])
    with recorder.meanwhile("manager.release"):
        manager.release(lease)
    manager.close()


def in_airflow(recorder: Recorder, hosts: str) -> None:
    """``HiveLockOperator.execute`` of tasks that ``dag.test()`` runs."""
    home = Path(tempfile.mkdtemp(prefix="airflow-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "dags").mkdir()
    connection = {
        "conn_type": "hivelock",
        "host": hosts,
        "schema": "hive-airflow",
        "extra": {"installation": "here", "root": "/airflow"},
    }
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": sqlite_url(home),
        "AIRFLOW_CONN_HIVELOCK_DEFAULT": json.dumps(connection),
    }
    create_sqlite(home, _migrate)
    warnings.simplefilter("ignore")  # Airflow's own
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.sdk import DAG

    from airflow_hivelock import HiveLockOperator
    from tests.support.airflow_names import DagBag, sync_bag_to_db

    execute: Callable[[HiveLockOperator, Any], Any] = HiveLockOperator.execute

    def recorded(self: HiveLockOperator, context: Any) -> Any:
        day = context["logical_date"].day
        with recorder.meanwhile("HiveLockOperator.execute" + (", for the first time" if day == 15 else "")):
            return execute(self, context)

    HiveLockOperator.execute = recorded  # type: ignore[method-assign]
    with DAG("walk", schedule=None, start_date=datetime(2013, 1, 15, tzinfo=UTC)) as dag:
        HiveLockOperator(task_id="lock", writes=["dw.delays/dt={{ ds }}"], waiting="defer")
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(dag_folder=str(home / "dags"), bundle_path=home / "dags", bundle_name="dags-folder")
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    for day in (15, 16):
        run = dag.test(logical_date=datetime(2013, 1, day, tzinfo=UTC))
        assert run.state == "success", run.state


def _migrate(url: str) -> None:
    env = os.environ | {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url}
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=env, check=True, capture_output=True)


CASES = {case.__name__: case for case in (alone, in_airflow)}


if __name__ == "__main__":
    main(*sys.argv[1:])
