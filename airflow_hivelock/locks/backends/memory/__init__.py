"""Locks in this process's memory: for tests and first steps, and the simplest example of a backend.

All clients of ``memory://`` within the process share one store; each ``memory://name`` is a store of its own.
"""

from airflow_hivelock.locks.backends.memory.acquisition import MemoryAcquisition
from airflow_hivelock.locks.backends.memory.backend import MemoryBackend

__all__ = ["MemoryAcquisition", "MemoryBackend"]
