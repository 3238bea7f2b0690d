"""Rules of the protocol, taken away one at a time, to see that the tests would miss them.

Each docstring says what goes wrong without the rule. Where chance finds that late, a script shows it: it passes as
things are, and fails without the rule. Some rules are not here, for nothing goes wrong that could be checked, or not
in this form of the protocol:

* the barrier's node is never swapped for another: a new node would be verified anew, so only the place would be lost;
* a barrier's node that Hive unlocked is struck from the record: a refused try drops the whole barrier, which heals it;
* ``alive`` is replaced by whoever takes over: else its request is broken when its predecessor's session ends, and queues
  again; a loss of place, not of safety;
* EXCLUSIVE nodes raise no guard: would they, releases would only be put off by more of other people's acquisitions;
* a transaction whose reply was lost is not sent again: every one that could do harm twice compares the version of the
  owner's record, which the first has raised. The second is refused, its sender reads the record and finds what the first
  has done. Only drains are taken without the record, and a second set is void as soon as the first is.
"""

from tests.simulation.mutations import (
    drain,
    groups,
    late,
    lease,
    nodes,
    parts,
    priority,
    queue,
    record,
    sequence,
    session,
    turn,
)
from tests.simulation.mutations.mutation import MUTATIONS, Mutation

__all__ = [
    "MUTATIONS",
    "Mutation",
    "drain",
    "groups",
    "late",
    "lease",
    "nodes",
    "parts",
    "priority",
    "queue",
    "record",
    "sequence",
    "session",
    "turn",
]
