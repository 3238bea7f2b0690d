"""What a PySpark job imports; needs neither Airflow nor, to be imported, Spark. Shippable as ``--py-files``, with kazoo.

A job that was stopped for longer than its lease does not know that others have written meanwhile. So it stages its
output, and publishes it only while its token is current::

    guard = Guard.of(spark)
    with guard.overwrite("dw.delays/dt=2013-01-01") as path:
        delays.write.parquet(path)        # the long part: nothing that a reader sees

``publication`` has the protocol, and what remains of the window between the look and the write.
"""

from __future__ import annotations

from airflow_hivelock.spark.guard import URL, Guard

__all__ = ["URL", "Guard"]
