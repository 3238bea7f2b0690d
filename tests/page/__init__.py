"""Checks of the page's scripts, in airflow_hivelock/ui/static, and the types of the server's answers to them."""
