"""The package on other versions of Python, Airflow and its own dependencies: a fresh environment each. ``make matrix``."""
