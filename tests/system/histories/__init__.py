"""Histories of real processes under faults: killed, stopped, and their ZooKeeper restarted or its leader lost.

The tests check ZooKeeper's own transaction log, write by write. Two conflicting leases are never held at the same time,
if both were returned to their callers: the workers log that. No owner ever has only a part of its locks, and no group
more leases than it may have. No lease passes a request that has waited, alive, for longer than the bound on passing.

Each update is also replayed against the specification in ``spec/``: see :mod:`.trace`.

``HISTORY_SECONDS=600 HISTORY_SEED=1 python -m pytest -s tests/system/histories`` is a soak of some thousands of leases.
"""
