"""``python -m airflow_hivelock.cli``: the same as ``airflow hivelock``, also if Airflow has no commands of providers."""

from airflow_hivelock.cli.command import main_in_airflow

if __name__ == "__main__":
    main_in_airflow()
