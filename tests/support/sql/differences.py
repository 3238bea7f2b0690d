"""All differences between a plan and the locks of real Hive, with the reasons. Hive is 2.3.10 unless a row names
another.
"""

from __future__ import annotations

MORE = {
    "added": "documented: EXCLUSIVE on a partition that is added. Hive: SHARED on the table, so that two jobs can add one",
    "ahead": "a CTE that another names before it is made is that CTE to Hive, and a table to Spark: both are locked",
    "compact": "EXCLUSIVE on what is rewritten. Hive only queues a compaction, and locks nothing",
    "condition": "functions, and what only follows from other tables, are not evaluated: all partitions are read",
    "described": "documented: EXCLUSIVE on a partition whose description changes. Hive: SHARED",
    "dynamic": "documented: EXCLUSIVE on all that may be written. Hive: SHARED (HIVE-3509), 4.0.1 too where a prefix is given",
    "exists": "Hive looks when it compiles whether there is anything to do. Here that may have changed when the lock is had",
    "explained": "EXPLAIN is locked as what it explains. Hive 4 locks nothing for it",
    "exported": "EXPORT is locked as what it reads. Hive 4 locks nothing for it",
    "moved": "a partition that comes or goes is EXCLUSIVE under both of its names. Hive locks one, or neither",
    "name": "a name that is made or changed is EXCLUSIVE, one that is only asked about SHARED. Hive locks neither",
    "outer": "Hive 3 turns an outer join into an inner one where WHERE makes it one, and reads fewer partitions",
    "prefix": "EXCLUSIVE on the table or prefix also keeps out those who would add partitions to it. Hive locks what exists",
    "properties": "documented: EXCLUSIVE. Hive: SHARED",
    "repair": "which partitions come or go is found out when it runs. Hive: SHARED on the table",
    "touch": "documented: EXCLUSIVE on what is touched. Hive: SHARED on the table",
    "view": "a view that is dropped is EXCLUSIVE. Hive 4: SHARED",
    "whole": "documented: EXCLUSIVE on the table of which any partition may be written, as Hive 4. Hive before: SHARED (HIVE-3509)",
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
    "told": "EXPLAIN of a write is SHARED on what it would write, for it writes nothing. Hive before 4: as the write itself",
    "temporary": "a temporary table is its session's own: its name is locked for nobody. Hive 4: EXCLUSIVE, with its query",
}
"""Where a plan is less than Hive locks: all there is."""
