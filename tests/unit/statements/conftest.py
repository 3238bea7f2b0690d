from __future__ import annotations

import pytest

from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.statements.session import StatementSession


@pytest.fixture
def manager() -> LockManager:
    return LockManager(MemoryBackend())


@pytest.fixture
def session(manager: LockManager) -> StatementSession:
    return StatementSession(manager, user="ann", database="dw")
