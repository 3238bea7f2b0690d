"""The worker of a history in a database: its transactions have names, and its signs of life are as quick as a session of ZooKeeper's."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_hivelock.locks.backends.database import candidate, notifier
from tests.system.histories import worker
from tests.system.histories.trace.audit import name_transactions

DEAD_S = 2.0
"""As long as a session of the histories on ZooKeeper. The product waits for 30 s."""


def hurry() -> None:
    """Take a process without a sign of life for dead after :data:`DEAD_S`."""
    candidate.DEAD_US = round(1e6 * DEAD_S)
    notifier.LOOK_S = DEAD_S / 4
    name_transactions()


if __name__ == "__main__":
    hurry()
    worker.main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
