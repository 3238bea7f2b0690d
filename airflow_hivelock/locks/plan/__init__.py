"""Plans the locks of a job, from the names of its data or from its SQL.

:mod:`.data` plans names of data. :mod:`.text` plans SQL, and prints a plan.
"""

from airflow_hivelock.locks.plan.data import FOLLOWS, Follows, check_follows, check_names, plan
from airflow_hivelock.locks.plan.text import (
    FOLLOWED,
    TaskSql,
    explain,
    explain_locks,
    plan_sql,
    plan_statements,
    plan_touched,
)

__all__ = [
    "FOLLOWED",
    "FOLLOWS",
    "Follows",
    "TaskSql",
    "check_follows",
    "check_names",
    "explain",
    "explain_locks",
    "plan",
    "plan_sql",
    "plan_statements",
    "plan_touched",
]
