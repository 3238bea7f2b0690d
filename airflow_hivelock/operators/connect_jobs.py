"""Functions of PySparkOperator. Their session can be on a server of Spark Connect.

The server continues a request after its client has died, and no record shows what it runs.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_hivelock.work.jobs.job import paths

_PYSPARK = "airflow.providers.apache.spark.operators.spark_pyspark.PySparkOperator"
_CONN_TYPE = "spark_connect"
_REMOTE = "spark.remote"


def is_function(operator: Any) -> bool:
    """Whether *operator* is a PySparkOperator, as is ``@task.pyspark``."""
    return _PYSPARK in paths(type(operator))


def may_use_server(operator: Any) -> bool:
    """Whether the session of *operator* may be on a server. Ask when its templates are rendered, as for ``execute()``."""
    if not is_function(operator):
        return False
    if os.environ.get("SPARK_REMOTE") or _REMOTE in operator.config_kwargs:
        return True
    if not operator.conn_id:
        return False
    try:
        connection = BaseHook.get_connection(operator.conn_id)
    except Exception:  # noqa: BLE001 - the operator reports it. Until then the session is unknown
        return True
    return (
        connection.conn_type == _CONN_TYPE
        or (connection.host or "").startswith("sc:")
        or _REMOTE in connection.extra_dejson
    )
