"""``python -m airflow_hivelock.cli``: the same as ``airflow hivelock``, also if Airflow has no commands of providers."""

import sys

from airflow_hivelock.cli import main

if __name__ == "__main__":
    sys.exit(main(in_airflow=True))
