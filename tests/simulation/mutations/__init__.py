"""Rules of the protocol, taken away one at a time, to see that the tests notice it.

Each docstring describes the harm without the rule. If chance finds the harm late, a script shows it: the script passes
with the rule, and fails without it. Some rules are not here, because their absence does no harm that could be checked,
or none in this form of the protocol:

* a placeholder is never swapped for another node: a new node would be verified again, so only its number would be lost;
* a placeholder that Hive unlocked is removed from the record: a give-back drops all of them, which repairs it;
* the process that takes over replaces the liveness node: otherwise its request is removed when the session of the
  process before it ends, and queues again; that costs its position, but no safety;
* a transaction whose reply was lost is not sent again: each compares the version of the owner's record, which the first
  has raised. The second is refused, and its sender reads in the record what the first has done.
"""

from tests.simulation.mutations import (
    at_once,
    background,
    changed_priority,
    deferred,
    group_limits,
    group_queue,
    groups,
    invited,
    lease,
    marking,
    nodes,
    parts,
    priority,
    queue,
    record,
    session,
    turn,
    upgrade,
)
from tests.simulation.mutations.mutation import MUTATIONS, Mutation

__all__ = [
    "MUTATIONS",
    "Mutation",
    "at_once",
    "background",
    "changed_priority",
    "deferred",
    "group_limits",
    "group_queue",
    "groups",
    "invited",
    "lease",
    "marking",
    "nodes",
    "parts",
    "priority",
    "queue",
    "record",
    "session",
    "turn",
    "upgrade",
]
