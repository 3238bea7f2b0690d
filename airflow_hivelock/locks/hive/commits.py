"""Tables of Iceberg, Hudi and Delta, and the locks that their commits take in Hive's metastore.

========  ==================================================  ===================================================
format    recognised by                                       lock of a commit in the metastore
========  ==================================================  ===================================================
Iceberg   ``table_type=ICEBERG``                              the table EXCLUSIVE, unless its property
                                                              ``engine.hive.lock-enabled`` is false
Hudi      ``spark.sql.sources.provider=hudi``, or its input   the same, if its writer has
          format                                              ``HiveMetastoreBasedLockProvider``
Delta     ``spark.sql.sources.provider=delta``                none
========  ==================================================  ===================================================

The commit waits for each lease on the table in the same metastore, even for the lease of its own task. See
``org.apache.iceberg.hive.HiveTableOperations`` of Iceberg 1.x.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.catalog import HUDI, LOCK_ENABLED
from airflow_hivelock.locks.model import LockObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.hive.catalog import Catalog

log = logging.getLogger(__name__)

WHAT_TO_SET = (
    f"set its property '{LOCK_ENABLED}'='false', so that its commits rely on the leases of its writers, or keep the locks of "
    "its tasks in another lock store"
)


def check_commits(reads: Iterable[LockObject], writes: Iterable[LockObject], catalog: Catalog) -> None:
    """Check that no commit to these tables would wait for a lease on these objects. Log a warning if it could.

    :raises InvalidRequest: the commits of a job would wait for the lease of the job's own task.
    """
    written = _tables(writes)
    for table in {**written, **_tables(reads)}:
        known = catalog.table(table)
        if not known or not known.commits_lock:
            continue
        if known.format == HUDI:
            log.warning(
                "%s is a Hudi table. With HiveMetastoreBasedLockProvider, its commits would wait for this lease. Use another "
                "lock provider, or keep the locks of its tasks in another lock store",
                table,
            )
        elif table in written:
            raise InvalidRequest(
                f"{table} is an Iceberg table. Each commit locks it in this metastore, and would wait for the lease of its own "
                f"task until it fails. To avoid that, {WHAT_TO_SET}"
            )
        else:
            log.warning(
                "%s is an Iceberg table. Commits to it wait while this task reads it, although readers need no lock. Remove it "
                "from reads, or %s",
                table,
                WHAT_TO_SET,
            )


def _tables(targets: Iterable[LockObject]) -> dict[LockObject, None]:
    return {LockObject(target.database, target.table): None for target in targets if target.table}
