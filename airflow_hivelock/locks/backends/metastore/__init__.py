"""Hive's own transactional lock manager: the locks of ``DbTxnManager``, over the metastore's Thrift.

Know this before you use it:

- A lease lives on heartbeats, which its task and Airflow's keeper send. The server frees a lease without one for
  ``hive.txn.timeout`` (300 s), and no lease lasts longer. So it frees the locks of a dead task although its Spark
  application still runs. It does so only with ``hive.compactor.initiator.on`` (Hive 4:
  ``metastore.housekeeping.threads.on``).
- The metastore keeps no later changes of a lease. Work is not recorded, and all work has the token of its lease. A late
  release by an earlier attempt frees a lease that a later one has taken over. The next check of the later one then
  raises LockLost. Force releases are in the log only.
- Hive 3 and later take no locks on external tables, unless ``hive.txn.ext.locking.enabled`` is set.
- If the server has EXCL_WRITE (Hive 4), readers keep it away by SHARED_WRITE. EXCL_WRITE is taken by UPDATE, DELETE,
  MERGE and, with ``hive.txn.xlock.iow=false``, INSERT OVERWRITE on ACID tables. Hive's own readers see a snapshot
  meanwhile.
- Before Hive 4, readers take SHARED_READ, which is compatible with the SHARED_WRITE of UPDATE, DELETE and MERGE. No
  server keeps readers apart from INSERT INTO an ACID table, which takes SHARED_READ. A job that reads such files itself
  names the table in ``writes``.
- Some jobs lock the table in the metastore in their own commit. Under a lease of their own task on it they wait for
  ever: Iceberg (set ``engine.hive.lock-enabled=false`` on the table), Hudi with ``HiveMetastoreBasedLockProvider``,
  Trino on ACID tables.
- Only the named objects are locked. A table that is read keeps writers from all its partitions, even from new ones. A
  prefix of partitions becomes its table.
- Metastores before Hive 4.0 grant EXCLUSIVE next to SHARED in two cases (HIVE-15077, HIVE-22888). So each grant and
  each renewal checks all locks of the database. A grant next to a conflicting lock is given back. But a *Hive* query
  that the server grants next to a lease is not kept out: the next check raises LockLost.
"""

from airflow_hivelock.locks.backends.metastore.backend import MetastoreBackend

__all__ = ["MetastoreBackend"]
