"""Times as Hive's configuration writes them: ``300s``, ``5m``, ``100 ms``, or ``300`` for seconds."""

from __future__ import annotations

import re

_UNITS_S = {"": 1.0} | {
    unit: unit_s
    for units, unit_s in (
        (("ms", "msec"), 0.001),
        (("s", "sec"), 1.0),
        (("m", "min"), 60.0),
        (("h", "hour"), 3600.0),
        (("d", "day"), 86_400.0),
    )
    for unit in units
}
_TIME = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z]*)")


def seconds(text: str) -> float | None:
    """The time that *text* says; None where it says none."""
    found = _TIME.fullmatch(text.strip().lower())
    unit_s = _UNITS_S.get(found[2]) if found else None
    return None if found is None or unit_s is None else float(found[1]) * unit_s
