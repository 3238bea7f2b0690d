"""Histories of real processes under faults: killed, stopped, and their ZooKeeper restarted or its leader lost.

Whatever the processes believed or were able to log, ZooKeeper's own transaction log is what is checked: replayed write
by write, there must at no moment be two locks that conflict, nor an owner with a part of what it asked for, nor more
leases of a group than it bears; and no grant may pass one who has waited, alive, for longer than the bound on passing.

``HISTORY_SECONDS=600 HISTORY_SEED=1 python -m pytest -s tests/system/histories`` is a soak of some thousands of leases.
"""
