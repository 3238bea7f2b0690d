"""Hive's own transactional lock manager: the locks of ``DbTxnManager``, over the metastore's Thrift.

To know before it is used:

- A lease lives on heartbeats, which its task and Airflow's keeper send: the server frees what has had none for its
  ``hive.txn.timeout`` (300 s), and no lease lasts longer. So it frees the locks of a dead task whose Spark application
  lives on. It does so only where ``hive.compactor.initiator.on`` (Hive 4: ``metastore.housekeeping.threads.on``).
- The metastore cannot be told anything of a lease later. What runs under one is not recorded, all work has the token of
  its lease, and a late release by an earlier attempt frees what a later one has taken over, whose next look then says
  LockLost. Force releases are in the log only.
- Hive 3 and later take no locks on external tables, unless ``hive.txn.ext.locking.enabled``.
- Readers keep EXCL_WRITE away where the server has it, by SHARED_WRITE (Hive 4): UPDATE, DELETE, MERGE and, with
  ``hive.txn.xlock.iow=false``, INSERT OVERWRITE on ACID tables, beside which Hive's own readers see their snapshot. Before
  that they take SHARED_READ, which goes with the SHARED_WRITE of UPDATE, DELETE and MERGE; and nowhere do they keep away
  what takes SHARED_READ, INSERT INTO an ACID table. A job that reads such files itself names the table in ``writes``.
- Jobs whose own commit locks the table in the metastore wait for ever under a lease of their own task on it: Iceberg
  (set ``engine.hive.lock-enabled=false`` on the table), Hudi with ``HiveMetastoreBasedLockProvider``, Trino on ACID tables.
- What is locked is what is named: a table that is read keeps writers from all its partitions, also from new ones. A
  prefix of partitions becomes its table.
- Metastores before Hive 4.0 grant EXCLUSIVE beside SHARED in two cases (HIVE-15077, HIVE-22888). So each grant and each
  renewal looks at all locks of the database, and a grant beside another lock is given back; a *Hive* query that is let in
  beside a lease is not kept out: the next look says LockLost.
"""

from airflow_hivelock.locks.backends.metastore.backend import MetastoreBackend

__all__ = ["MetastoreBackend"]
