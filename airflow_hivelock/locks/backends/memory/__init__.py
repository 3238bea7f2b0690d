"""Locks in this process's memory: for trying things out, and the plainest statement of what a backend does.

``memory://`` is shared by all who connect within the process; ``memory://name`` keeps apart.
"""

from airflow_hivelock.locks.backends.memory.backend import MemoryAcquisition, MemoryBackend

__all__ = ["MemoryAcquisition", "MemoryBackend"]
