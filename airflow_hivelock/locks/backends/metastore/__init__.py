"""Hive's own transactional lock manager: the locks of ``DbTxnManager``, over the metastore's Thrift.

docs/guides/without-zookeeper.md has the differences from other stores: heartbeats, external tables, and writers that do
not wait for readers. In addition:

- The metastore keeps no later changes of a lease, so all work has the token of its lease. A late release by an earlier
  attempt frees a lease that a later one has taken over. The next check of the later one then raises LockLost. Force
  releases are in the log only.
- Only the named objects are locked. A table that is read keeps writers from all its partitions, even from new ones. A
  prefix of partitions becomes its table.
- Metastores before Hive 4.0 grant EXCLUSIVE next to SHARED in two cases (HIVE-15077, HIVE-22888). So each grant and
  each renewal checks all locks of the database. A grant next to a conflicting lock is given back. But a *Hive* query
  that the server grants next to a lease is not kept out: the next check raises LockLost.
"""

from airflow_hivelock.locks.backends.metastore.backend import MetastoreBackend

__all__ = ["MetastoreBackend"]
