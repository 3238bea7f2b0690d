"""Tables with commits of their own: real commits of Iceberg under leases, and the warnings before them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hmsclient.genthrift.hive_metastore import ttypes as hive

from airflow_hivelock.locks import InvalidRequest, connect
from airflow_hivelock.locks.hive.catalog import connect_catalog
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.spec import LockSpec, Owner
from tests.support.servers import Metastore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.hive.catalog import MetastoreCatalog

pyiceberg = pytest.importorskip("pyiceberg.catalog.hive", reason="pyiceberg is not installed")

pytestmark = pytest.mark.integration

PLAIN = {
    "dw.plain": {},
    "dw.delta": {"spark.sql.sources.provider": "DELTA"},
    "dw.hudi": {"spark.sql.sources.provider": "hudi"},
    "dw.sure": {"table_type": "ICEBERG", "engine.hive.lock-enabled": "false"},
}


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with Metastore(tmp_path_factory.mktemp("metastore"), transactional=True) as server:
        yield server


@pytest.fixture(scope="module")
def table(metastore: Metastore) -> Any:
    """An Iceberg table, made and changed by Iceberg's own client."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    options = {
        "uri": metastore.uri,
        "warehouse": metastore.warehouse,
        "hive.hive2-compatible": "true",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "lock-check-max-wait-time": "0.1",
    }
    catalog = pyiceberg.HiveCatalog("hive", **options)
    catalog.create_namespace("dw")
    return catalog.create_table("dw.ice", Schema(NestedField(1, "a", LongType(), required=False)))


@pytest.fixture(scope="module")
def catalog(metastore: Metastore, table: Any) -> MetastoreCatalog:
    found = connect_catalog(metastore.uri)
    with found.metastore.client() as client:
        for name, parameters in PLAIN.items():
            database, _, plain = name.partition(".")
            columns = [hive.FieldSchema(name="a", type="int")]
            stored = hive.StorageDescriptor(
                cols=columns, location=f"{metastore.warehouse}/{plain}", serdeInfo=hive.SerDeInfo()
            )
            client.create_table(
                hive.Table(
                    dbName=database, tableName=plain, sd=stored, parameters=parameters, tableType="EXTERNAL_TABLE"
                )
            )
    return found


def commit(table: Any, value: str) -> None:
    table.refresh()
    with table.transaction() as change:
        change.set_properties(value=value)


def test_a_commit_waits_for_a_lease_in_the_same_metastore_and_for_no_other(metastore: Metastore, table: Any) -> None:
    from pyiceberg.exceptions import CommitFailedException

    with connect(f"metastore://127.0.0.1:{metastore.port}") as manager:
        for locked in ({"writes": ["dw.ice"]}, {"reads": ["dw.ice"]}):
            lease = manager.acquire(owner="its own task", **locked)  # type: ignore[arg-type]
            with pytest.raises(CommitFailedException, match="lock"):
                commit(table, "under a lease")
            manager.release(lease)
        commit(table, "without one")
    with connect("memory://iceberg") as manager:
        manager.acquire(owner="its own task", writes=["dw.ice"])
        commit(table, "elsewhere")
    table.refresh()
    assert table.properties["value"] == "elsewhere"


def test_the_metastore_tells_which_tables_are_changed_by_commits(catalog: MetastoreCatalog) -> None:
    def told(name: str) -> tuple[str, bool]:
        known = catalog.table(LockObject.parse(name))
        assert known is not None
        return known.format, known.commits_lock

    assert {name: told(name) for name in ("dw.ice", *PLAIN)} == {
        "dw.ice": ("iceberg", True),
        "dw.plain": ("", False),
        "dw.delta": ("delta", False),
        "dw.hudi": ("hudi", True),
        "dw.sure": ("iceberg", False),
    }


@pytest.mark.parametrize(
    ("reads", "writes", "store", "said"),
    [
        ([], ["dw.ice"], "metastore", "dw.ice is an Iceberg table. Each commit locks it"),
        ([], ["spark_catalog.dw.ice"], "metastore", "dw.ice is an Iceberg table. Each commit locks it"),
        (["dw.ice"], [], "metastore", "WARNING dw.ice is an Iceberg table. Commits to it wait while"),
        ([], ["dw.hudi"], "metastore", "WARNING dw.hudi is a Hudi table"),
        (["dw.delta", "dw.plain"], ["dw.sure"], "metastore", ""),
        (["dw.hudi"], ["dw.ice"], "zookeeper", ""),
        ([], ["lake.dw.ice"], "zookeeper", "in the catalog 'lake'. Hive does not know that catalog"),
    ],
)
def test_a_task_is_told_before_it_has_its_locks(
    reads: list[str],
    writes: list[str],
    store: str,
    said: str,
    catalog: MetastoreCatalog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook: Any = SimpleNamespace(
        catalog=lambda: catalog, url=f"{store}://127.0.0.1", settings=SimpleNamespace(locks="stricter")
    )
    spec = LockSpec(reads=reads, writes=writes, unpartitioned=["dw.sure"])
    with caplog.at_level(logging.WARNING, "airflow_hivelock"):
        try:
            spec.request(hook, Owner("here", "dag", "run", "task"), 1)
            found = "".join(f"{record.levelname} {record.getMessage()}" for record in caplog.records)
        except InvalidRequest as error:
            found = str(error)
    assert (said in found) if said else not found
