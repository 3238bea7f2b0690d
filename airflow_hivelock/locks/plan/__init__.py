"""From what a job does, by names of data or by its SQL, to the objects that it locks.

:mod:`.data` says what reading and writing data means in locks; :mod:`.text` plans SQL, and prints a plan.
"""

from airflow_hivelock.locks.plan.data import check_names, plan
from airflow_hivelock.locks.plan.text import Dynamic, check_statements, explain, explain_json, plan_statements

__all__ = ["Dynamic", "check_names", "check_statements", "explain", "explain_json", "plan", "plan_statements"]
