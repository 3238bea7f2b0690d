"""What waiting for locks costs the rest of an Airflow: ``make bench-airflow``."""
