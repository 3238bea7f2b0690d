"""The "Hive locks" page in Airflow's UI: a plugin with a small web application in a frame."""
