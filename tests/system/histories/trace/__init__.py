"""Trace validation: each update that ZooKeeper has logged must be a step that the specification in ``spec/`` allows.

TLC does not replay the log itself. The specification also has the reads of each process, which ZooKeeper does not log, and four
objects and three owners; a log has hundreds. So :mod:`.actions` repeats the updates of the specification. It has one function
for each action, with its name. A test compares the names, and ``tests/spec/behaviours.py`` replays
behaviours of TLC's through them.

The rows of a database are replayed through the same functions. :mod:`.audit` has each transaction of a database, and :mod:`.rows`
reads it as steps. The specification speaks of lock nodes, tickets and a verification after the grant. A database has no verification:
it decides and writes in one transaction. So ``give_back``, ``mark`` and ``place`` do not exist there, and each grant is checked
against the state before it: no conflicting lease, no conflicting request before it, a free permit, a larger token.
"""
