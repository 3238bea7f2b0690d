"""The parameters of a run, drawn from its dice. Some kinds of harm need conditions that rarely meet by chance. So the
theme of a run fixes some of them, and leaves the rest and every step to the dice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.simulation.dice import Dice

T = TypeVar("T")

Theme = dict[str, Any]

CLEAN_UP: Theme = {
    "switch": 0.3, "pause": 0.2, "faults": 0.0, "lose": 0.0, "lose_rare": 0.0, "refuse": 0.0,
    "hives": 1, "unlocks": 0.0, "cleans": 0.9, "leaves": 0.0, "regular": True, "pace_s": 0.01, "steady_hive": True,
    "at_once": True, "reads": 0.9, "databases": 0.03, "partitions": 1, "naps": 3, "machines": 1, "rests_s": 0.3, "rounds": 25,
}  # fmt: skip
"""Readers, and one user of Hive's whose sessions end, and clean up, again and again."""


DATABASES: Theme = {
    "hives": 1, "databases": 0.5, "partitions": 1, "lose": 0.0, "faults": 0.002, "unlocks": 0.4, "cleans": 0.9,
    "pace_s": 0.01, "naps": 10, "refuse": 0.0,
}  # fmt: skip
"""Much is asked of the whole database, which Hive unlocks and cleans up."""

QUEUES: Theme = {
    "hives": 0, "databases": 0.4, "partitions": 1, "lose": 0.0, "faults": 0.0, "at_once": True, "naps": 3, "refuse": 0.0,
    "threads": 2, "machines": 3, "switch": 0.9,
}  # fmt: skip
"""Some queue for the whole database, beside others who are granted at once."""

IMPATIENT_HIVE: Theme = {
    "hives": 2, "unlocks": 0.0, "cleans": 0.0, "pace_s": 0.01, "lose": 0.0, "faults": 0.0, "naps": 3, "patience_s": 86_400.0,
    "timeouts_s": (None,), "no_waits": 0.0, "gives_up": 0.0,
}  # fmt: skip
"""Hive's locks come and go while ours wait for them."""

URGENT: Theme = {
    "hives": 1, "urgent": 0.7, "lates": 0.2, "patience_s": 0.0, "partitions": 1, "databases": 0.03, "at_once": False, "reads": 0.3,
    "lose": 0.0, "faults": 0.002, "refuse": 0.0, "unlocks": 0.0, "cleans": 0.0, "leaves": 0.0, "pace_s": 0.01, "naps": 3,
    "machines": 3, "threads": 2, "switch": 0.9, "no_waits": 0.0, "timeouts_s": (None,),
}  # fmt: skip
"""Requests of many priorities, beside a user of Hive's for whom none of them has patience."""

READ_TOGETHER: Theme = IMPATIENT_HIVE | {"real_sessions": True, "version": "3.9.5", "at_once": True}
"""The same by the real session, which reads in bulk."""

LAGGING: Theme = {
    "real_sessions": True, "followers": 3, "catch_up": 0.02, "kinds": ("expire",), "faults": 0.01, "lose": 0.0, "refuse": 0.0,
}  # fmt: skip
"""Sessions end, and the next ones are with servers that lag."""

LIMITED: Theme = {
    "limits": 1.0, "groups": 1, "reads": 0.9, "databases": 0.0, "hives": 0, "owners": 6, "threads": 2, "machines": 3,
    "refuse": 0.0, "counting": 0.0,
}  # fmt: skip
"""Nearly all can have their locks, and wait for one of few leases."""

LIMITED_AND_LOCKED: Theme = LIMITED | {"reads": 0.3, "limits": 0.7, "hives": 1}
"""They wait for both, and some for locks alone."""

LIMITS_CHANGE: Theme = LIMITED | {"sets_limits": 0.6, "heavy": 0.4, "rounds": 25}
"""An operator stores other limits all the time, and some requests take several permits."""

INVITED: Theme = {
    "lates": 0.8, "partitions": 2, "reads": 0.3, "databases": 0.1, "machines": 3, "owners": 6, "threads": 2, "naps": 3,
    "invitations_s": (0.2, 2.0), "refuse": 0.0, "lose": 0.0, "faults": 0.002, "no_waits": 0.0,
}  # fmt: skip
"""Nearly all need a worker slot as well."""

INVITED_AND_LIMITED: Theme = INVITED | {"limits": 0.7, "groups": 1, "reads": 0.6, "hives": 0}
"""They wait for one of few leases, too."""

ABANDONED: Theme = {
    "gives_up": 0.1, "abandons": 0.5, "lose": 0.02, "lose_rare": 0.0, "owners": 6, "machines": 3, "partitions": 1, "no_waits": 0.0,
    "faults": 0.0, "reads": 0.3, "hives": 0, "refuse": 0.0,
}  # fmt: skip
"""Some give up while the connection breaks, and do not try that again themselves."""

UPGRADED: Theme = {"upgrade": 0.4}
"""A later version comes early, and raises the lowest reader."""

THEMES: tuple[Theme, ...] = (
    {},
    {},
    LIMITS_CHANGE,
    CLEAN_UP,
    DATABASES,
    QUEUES,
    IMPATIENT_HIVE,
    URGENT,
    LIMITED,
    LIMITED_AND_LOCKED,
    INVITED,
    INVITED_AND_LIMITED,
)


@dataclass(frozen=True)
class Draw:
    """Draws a run's features by their names."""

    dice: Dice
    theme: Theme

    def __call__(self, name: str, *choices: T) -> T:
        drawn = self.dice.pick(choices)
        fixed: T = self.theme.get(name, drawn)
        return fixed
