"""A task that ends only when it is made to."""

from __future__ import annotations

import time

from airflow.sdk import dag, task


@dag(schedule=None)
def endless() -> None:
    @task
    def sleep() -> None:
        time.sleep(3600)

    sleep()


endless()
