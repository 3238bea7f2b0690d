"""Plans the locks of a job, from the names of its data or from its SQL.

:mod:`.data` plans names of data. :mod:`.text` plans SQL, and prints a plan.
"""

from airflow_hivelock.locks.plan.data import FOLLOWS, Follows, check_follows, check_names, plan
from airflow_hivelock.locks.plan.text import (
    FOLLOWED,
    check_statements,
    explain,
    explain_json,
    explain_locks,
    plan_sql,
    plan_statements,
    plan_touched,
    same_in,
    tries_s,
    turned_off,
)

__all__ = [
    "FOLLOWED",
    "FOLLOWS",
    "Follows",
    "check_follows",
    "check_names",
    "check_statements",
    "explain",
    "explain_json",
    "explain_locks",
    "plan",
    "plan_sql",
    "plan_statements",
    "plan_touched",
    "same_in",
    "tries_s",
    "turned_off",
]
