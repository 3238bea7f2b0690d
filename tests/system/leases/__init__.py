"""Many processes that grab leases in one database, work under them and release: killed, or against the clock.

Every piece of work is a row, and a counter that is read and then written, in the same database. Two that work at once
on one object would lose an update, and the rows have the worker, the time and the token.
"""
