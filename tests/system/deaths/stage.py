"""One real Airflow on PostgreSQL, one real ZooKeeper, and every row that is asked for."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hivelock.locks import connect
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from tests.support.airflow_server import KINDS, AirflowServer, locks_in
from tests.support.servers import Ensemble, PostgresServer
from tests.system.deaths.play import NO_SLOTS, WAIT_S, Play, Stage
from tests.system.deaths.verdict import judge
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.airflow_server.configuration import Config
    from tests.support.clusters import Cluster
    from tests.support.servers import ZooKeeperServer
    from tests.system.deaths.row import Row
    from tests.system.deaths.verdict import Verdict

REPOSITORY = Path(__file__).parents[3]
AT_ONCE = 6
"""How many rows run side by side."""

CONFIG: Config = {
    ("core", "parallelism"): "16",
    # For that time Airflow takes a dead task for alive if its child keeps its output open.
    ("workers", "socket_cleanup_timeout"): "2",
    # Airflow's defaults are minutes.
    ("scheduler", "task_instance_heartbeat_timeout"): "30",
    ("scheduler", "task_instance_heartbeat_timeout_detection_interval"): "5",
    ("scheduler", "orphaned_tasks_check_interval"): "10",
    ("scheduler", "scheduler_health_check_threshold"): "15",
}


@contextmanager
def staged(
    directory: Path,
    store: ZooKeeperServer | Ensemble | PostgresServer,
    celery: str | None = None,
    *,
    dags_of: Path = Path(__file__).parent / "dags",
    clusters: Sequence[Cluster] = (),
    unpaused: str = "%",
    config: Config = CONFIG,
) -> Iterator[Stage]:
    """An Airflow in *directory* with the DAGs of the rows and the example that force-releases.

    :param store: the lock store.
    :param celery: the URL of a broker for CeleryExecutor; None for LocalExecutor.
    :param clusters: the stand-ins for clusters. Each has its provider's default connection.
    :param unpaused: a pattern of the names of the DAGs to unpause.
    """
    dags = shutil.copytree(dags_of, directory / "dags")
    shutil.copy(REPOSITORY / "dags_examples" / "force_release_stale_locks.py", dags)
    gates = directory / "gates"
    gates.mkdir()
    url = store.url
    servers: Sequence[ZooKeeperServer] = ()
    if not isinstance(store, PostgresServer):
        url = f"zookeeper://{store.hosts}/hive-deaths?root=/hivelock-deaths"
        servers = store.members if isinstance(store, Ensemble) else [store]
    with (
        AirflowServer(
            directory / "airflow",
            dags,
            connections={"hivelock_default": locks_in(url)} | {each.conn_id: each.connection() for each in clusters},
            variables={"gates": str(gates)},
            env={name: value for each in clusters for name, value in each.environment().items()},
            config={**config, **({} if celery is None else _celery(celery))},
            kinds=KINDS if celery is None else (*KINDS, "celery worker"),
        ) as af,
        connect(url) as manager,
    ):
        unpause(af, unpaused)
        af.api.call("POST", "pools", json={"name": NO_SLOTS, "slots": 0})
        yield Stage(af, manager, gates, servers, {each.kind: each for each in clusters})


def _celery(broker: str) -> dict[tuple[str, str], str]:
    return {
        ("core", "executor"): "CeleryExecutor",
        ("celery", "broker_url"): broker,
        ("celery", "worker_concurrency"): "8",
        ("celery_broker_transport_options", "visibility_timeout"): "86400",
    }


def unpause(af: AirflowServer, pattern: str) -> None:
    """The DAGs of such names."""
    af.wait(lambda: af.api.knows_dag("look"), 120, "the DAGs to be parsed")
    af.api.call("PATCH", "dags", params={"dag_id_pattern": pattern}, json={"is_paused": False})


def play_all(stage: Stage, rows: Sequence[Row], at_once: int = AT_ONCE) -> dict[str, Verdict | BaseException]:
    """Each row's verdict by its name, or what it has raised."""
    plays = [Play(stage, row.name) for row in rows]
    with ThreadPoolExecutor(at_once) as pool:
        acted = [pool.submit(_play, row, play) for row, play in zip(rows, plays, strict=True)]
    if not all(row.frees_itself for row in rows):
        force_release(stage)
    log = transactions(stage.servers)
    assert isinstance(stage.manager.backend, ZooKeeperBackend)
    return {
        row.name: future.exception() or judge(play, log, stage.manager.backend.store.layout, stage.af.home)
        for row, play, future in zip(rows, plays, acted, strict=True)
    }


def _play(row: Row, play: Play) -> None:
    try:
        row.act(play)
        play.settle(row.frees_itself)
    finally:
        for run in play.runs:
            run.open_if_closed()
        for rival in play.rivals:
            play.stage.manager.release(rival)


def force_release(stage: Stage) -> None:
    """One run of the DAG that users copy, as they would start it by hand."""
    dag_id = "force_release_stale_locks"
    run_id = stage.af.trigger(dag_id, conf={"dry_run": False, "grace_minutes": 0})
    stage.af.wait(lambda: stage.af.run(dag_id, run_id).state == "success", WAIT_S, "the force release")
