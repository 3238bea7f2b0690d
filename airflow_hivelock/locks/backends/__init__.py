"""The lock stores. None imports another; :func:`airflow_hivelock.locks.connect` chooses by URL."""
