"""How a metastore of another Hive answers Spark's client, and which sessions have no such client."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

pytest.importorskip("py4j", reason="Spark is an extra")

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from airflow_hivelock.locks.errors import StoreUnavailable, Unsupported
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.spark import target
from airflow_hivelock.spark.target import Target

DAY = LockObject.parse("dw.t/dt=1")


def raised(kind: str, message: str) -> Py4JJavaError:
    """What py4j makes of a Java exception of that class."""
    java = MagicMock(_target_id="o1")
    java.getClass().getSimpleName.return_value, java.getMessage.return_value = kind, message
    return Py4JJavaError("An error occurred", java)


def session(catalog: str = "hive") -> MagicMock:
    spark = MagicMock()
    spark.conf.get.return_value = catalog
    return spark


def test_a_metastore_that_has_given_up_a_call_is_told_of_before_anything_is_staged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hive 4.0.1 and later, asked for \"get_table\" (HIVE-26537); not an outage, which a retry would mend."""
    driver = MagicMock()
    driver.metastore.return_value.getTable.side_effect = raised(
        "TApplicationException", "Invalid method name: 'get_table'"
    )
    monkeypatch.setattr(target, "Driver", lambda spark: driver)
    with pytest.raises(
        Unsupported, match=r"dw.t/dt=1 cannot be published: .*'get_table'.*spark\.sql\.hive\.metastore\.version"
    ):
        Target(session(), DAY)


def test_spark_s_own_catalog_that_cannot_be_opened_is_an_outage() -> None:
    spark = session()
    spark._jsparkSession.sharedState().externalCatalog.side_effect = AnalysisException("Unable to instantiate")
    with pytest.raises(StoreUnavailable, match=r"dw.t/dt=1: .*Unable to instantiate.*Nothing was changed"):
        Target(spark, DAY)


@pytest.mark.parametrize(
    ("spark", "named"),
    [(SimpleNamespace(), "Spark Connect"), (session("in-memory"), r"enableHiveSupport\(\)")],
    ids=["connect", "no-hive"],
)
def test_a_session_that_reaches_no_metastore_is_told_so(spark: object, named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        Target(spark, DAY)
