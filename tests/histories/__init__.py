"""Histories of real processes under faults: killed, stopped, and their ZooKeeper restarted or its leader lost.

Every request has an owner of its own, so its record tells its whole life in ZooKeeper's own order: granted at
``token``, ended at the zxid of its tombstone. Whatever the processes believed or were able to log, the store's history
is what is checked.
"""
