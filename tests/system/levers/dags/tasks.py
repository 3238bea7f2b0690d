"""Tasks that wait for the table of their run's conf, in each lock store. A gated one works until its gate, a file, is there."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_hivelock import locked
from tests.system.levers.stores import GROUP, STORES

KINDS: dict[str, dict[str, Any]] = {
    "daily": {},
    "spark": {"lease_group": GROUP},
    "heavy": {"lease_group": GROUP, "weight": 2},
}
WORK = """{% if dag_run.conf.get('gate') %}timeout 900 sh -c "until [ -e '{{ dag_run.conf['gate'] }}' ]; do sleep 0.5; done"
{% else %}true{% endif %}"""

for name, conn_id in STORES.items():
    for kind, more in KINDS.items():
        with DAG(f"{name}_{kind}", schedule=None):
            locked(BashOperator)(
                task_id="load",
                hivelock_conn_id=conn_id,
                writes=["{{ dag_run.conf['object'] }}"],
                bash_command=WORK,
                **more,
            )
