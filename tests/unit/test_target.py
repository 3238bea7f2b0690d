"""What a metastore of another Hive says to the client among Spark's jars."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

from airflow_hivelock.locks.errors import Unsupported
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.spark.target import Target


def raised(kind: str, message: str) -> Py4JJavaError:
    """What py4j makes of a Java exception of that class."""
    java = MagicMock(_target_id="o1")
    java.getClass().getSimpleName.return_value, java.getMessage.return_value = kind, message
    return Py4JJavaError("An error occurred", java)


def test_a_metastore_that_has_given_up_a_call_is_told_of_before_anything_is_staged() -> None:
    """Hive 4.0.1 and later, asked for \"get_table\" (HIVE-26537); not an outage, which a retry would mend."""
    spark = SimpleNamespace(_jvm=MagicMock(), _jsc=MagicMock())
    client = spark._jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient.return_value
    client.getTable.side_effect = raised("TApplicationException", "Invalid method name: 'get_table'")
    with pytest.raises(Unsupported, match=r"dw.t/dt=1 cannot be published: .*Invalid method name: 'get_table'"):
        Target(spark, LockObject.parse("dw.t/dt=1"))
