"""The Hive lease in a database. Read :mod:`.tables` first, then :mod:`.acquisition`.

The published algorithm looks for unexpired rows that conflict, takes an id and the time, inserts and commits. Then it
confirms: its own row must be the first of each object in order of end and id. To extend, it moves an end that has not
passed, and confirms again. The problems of that algorithm, and what this package does instead:

- *Looking and inserting are two steps.* Here they are one transaction, which keeps out every request that may conflict.
  So nothing needs to be confirmed. See :mod:`.postgresql`, :mod:`.mysql` and :mod:`.sqlite`.
- *Confirming by the earliest end refuses a second reader.* Here the modes decide: S is compatible with S, X with
  nothing.
- *A short late lease beats a long earlier one.* Here queue positions decide, by numbers that the store draws: first
  come, first served.
- *An extension can lose what it holds.* Here it only moves the end of an existing row. An expired lease that no other
  request has taken can be extended: a request that takes it also ends it.
- *A refused request is lost.* Here a request may wait, with a row as its queue position. A waiter gives signs of life
  by the database's clock. The request behind it removes a waiter that has given none for 30 s.
- *An id is no fencing token.* Tokens grow with every grant and every start of work.
- *Time frees a lease although its work still runs.* Only with ``expiry=frees``; otherwise an expired lease still
  blocks.
"""

from airflow_hivelock.locks.backends.database.backend import DatabaseBackend

__all__ = ["DatabaseBackend"]
