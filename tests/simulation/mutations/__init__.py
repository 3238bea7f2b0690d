"""Rules of the protocol, taken away one at a time, to see that the tests would miss them.

Each docstring says what goes wrong without the rule. Where chance finds that late, a script shows it: it passes as
things are, and fails without the rule. Some rules are not here, for nothing goes wrong that could be checked, or not
in this form of the protocol:

* a placeholder is never swapped for another node: a new node would be verified again, so only its number would be lost;
* a placeholder that Hive unlocked is struck from the record: a give-back drops all of them, which heals it;
* the liveness node is replaced by the process that takes over: else its request is broken when the session of the process
  before it ends, and queues again; a loss of position, not of safety;
* a transaction whose reply was lost is not sent again: each compares the version of the owner's record, which the first has
  raised. The second is refused, its sender reads the record and finds what the first has done.
"""

from tests.simulation.mutations import (
    at_once,
    groups,
    late,
    lease,
    nodes,
    parts,
    priority,
    queue,
    record,
    session,
    turn,
)
from tests.simulation.mutations.mutation import MUTATIONS, Mutation

__all__ = [
    "MUTATIONS",
    "Mutation",
    "at_once",
    "groups",
    "late",
    "lease",
    "nodes",
    "parts",
    "priority",
    "queue",
    "record",
    "session",
    "turn",
]
