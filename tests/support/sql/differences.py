"""Where a plan differs from what real Hive 2.3.10 locks, and why: all there is."""

from __future__ import annotations

MORE = {
    "added": "documented: EXCLUSIVE on a partition that is added. Hive: SHARED on the table, so that two jobs can add one",
    "ahead": "a CTE that another names before it is made is that CTE to Hive, and a table to Spark: both are locked",
    "compact": "EXCLUSIVE on what is rewritten. Hive only queues a compaction, and locks nothing",
    "condition": "functions, and what only follows from other tables, are not evaluated: all partitions are read",
    "described": "documented: EXCLUSIVE on a partition whose description changes. Hive: SHARED",
    "dynamic": "documented: EXCLUSIVE on all that may be written. Hive: SHARED (HIVE-3509)",
    "exists": "Hive looks when it compiles whether there is anything to do. Here that may have changed when the lock is had",
    "moved": "a partition that comes or goes is EXCLUSIVE under both of its names. Hive locks one, or neither",
    "name": "a name that is made or changed is EXCLUSIVE, one that is only asked about SHARED. Hive locks neither",
    "prefix": "EXCLUSIVE on the table or prefix also keeps out those who would add partitions to it. Hive locks what exists",
    "properties": "documented: EXCLUSIVE. Hive: SHARED",
    "repair": "which partitions come or go is found out when it runs. Hive: SHARED on the table",
    "touch": "documented: EXCLUSIVE on what is touched. Hive: SHARED on the table",
}
"""Reasons for locking more than Hive."""

BY_CHOICE = ("added", "described", "dynamic", "loaded", "properties", "touch")
"""Those that are rows of the documented table of commands: with ``locks="hive"`` a plan has Hive's."""

FROM_DOCUMENTED = {
    "format": "SET SERDE and SET FILEFORMAT of a table. Documented: SHARED. Hive: EXCLUSIVE, and so here, but with locks='documented'",
}
"""Where a plan is Hive's, and more than is documented."""

LESS = {
    "loaded": "LOAD DATA that makes its partition. Documented: EXCLUSIVE on the partition, so that loads of a table run at once. "
    "Hive: on the table",
}
"""Where a plan is as documented, and less than Hive locks: all there is."""
