"""The store's stamp, checked after every write: a process below the lowest reader is granted nothing, and frees nothing
by force.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_hivelock.locks import formats
from tests.simulation.claims import Violation
from tests.simulation.state import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.checks import Checks
    from tests.simulation.model import Change
    from tests.simulation.session import SimulatedSession
    from tests.simulation.state import State

LATER = formats.Stamp(formats.FORMAT + 2, formats.FORMAT + 2)
"""The stamp of a later version, which raises the lowest reader."""

_STAMP, _AUDIT = f"{ROOT}/format", f"{ROOT}/audit/"


class FormatChecks:
    """Follows the stamp.

    :ivar later: the clients of the later version.
    :ivar raised: whether the stamp refuses this version.
    """

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self.later: set[SimulatedSession] = set()
        self.raised = False
        self._audited = False

    def changed(self, change: Change) -> bool:
        """Follow a change of the stamp or the audit trail; False if it is neither."""
        if change.path.startswith(_AUDIT):
            self._audited = True
        elif change.path == _STAMP:
            data = json.loads(change.after.data) if change.after and change.after.data else {"format": 0}
            self.raised = data.get("min_reader", data["format"]) > formats.FORMAT
        else:
            return False
        return True

    def check(self, client: SimulatedSession, before: Mapping[str, State | None]) -> None:
        """Check what *client* has written, by the records before it."""
        audited, self._audited = self._audited, False
        if not self.raised or client in self.later or client.name.startswith("hive"):
            return
        if audited:
            raise Violation(f"{client.name} uses force, and is too old for the stamp")
        for key, earlier in before.items():
            after = self._checks.states.get(key)
            if after is not None and (gained := _gained(earlier, after)):
                raise Violation(f"{client.name} is too old for the stamp, and {after.owner} {gained}")


def _gained(before: State | None, after: State) -> str:
    """What a request has got by one step; ``""``: nothing."""
    acts = after.waits or after.holds or after.invited
    if not acts:
        return ""
    if before is None or not (before.waits or before.holds or before.invited):
        return f"asks for locks: it is {after.state}"
    if after.state in ("granted", "invited") and not before.holds and after.state != before.state:
        return f"is {after.state}, and was {before.state}"
    if after.process != before.process:
        return f"is taken over: it is {after.state}"
    return ""
