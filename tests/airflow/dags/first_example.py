"""README's first example, word for word, in a DAG."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_hivelock import HiveLockedSparkSubmitOperator
from tests.docs.blocks import Kind, blocks

EXAMPLE = blocks(Kind.DAG)[0]

with DAG("first_example", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
    exec(
        compile(EXAMPLE.padded, EXAMPLE.page, "exec"), {"HiveLockedSparkSubmitOperator": HiveLockedSparkSubmitOperator}
    )
