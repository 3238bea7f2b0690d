"""The shipped test kit: what every backend must do, as a pytest class, for ours and for yours."""

from airflow_hivelock.locks.testing.conformance import BackendConformance
from airflow_hivelock.locks.testing.conformance.suite import Polling

__all__ = ["BackendConformance", "Polling"]
