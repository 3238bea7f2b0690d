"""Hive's own table and partition locks for Airflow tasks."""
