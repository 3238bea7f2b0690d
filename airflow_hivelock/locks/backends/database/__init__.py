"""The Hive lease in a database. Read :mod:`.tables` first, then :mod:`.acquisition`.

The algorithm that was published for it: look for unexpired rows that conflict; take an id and the time; insert and commit;
then confirm, by looking whether one's own row is the first of each object in order of end and id; extend by moving the
end where it has not passed, and confirm again. What is wrong with that, and what is done instead:

- *Looking and inserting are two steps.* Here they are one transaction, which keeps out every request that may
  conflict (:mod:`.postgresql`, :mod:`.mysql`, :mod:`.sqlite` say how); nothing needs to be confirmed.
- *Confirming by the earliest end refuses a second reader.* Modes decide: S goes with S, X with nothing.
- *A short late lease beats a long earlier one.* Places decide, numbers that the store draws: first come, first served.
- *An extension can lose what it holds.* It moves the end of a row that stands, and asks nobody. An expired lease that
  nobody has taken can be extended: nobody was in between, for to take it is to end it.
- *Refused is refused.* A request may wait, its place a row. A waiter gives signs of life by the database's clock, and
  one that has given none for 30 s is taken away by the request behind it.
- *An id is no fence.* Tokens grow with every grant and every start of work.
- *Time frees, whatever still runs.* Only with ``expiry=frees``; otherwise an expired lease blocks on, and is suspect.
"""

from airflow_hivelock.locks.backends.database.backend import DatabaseBackend

__all__ = ["DatabaseBackend"]
