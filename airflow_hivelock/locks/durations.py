"""Durations as people write them."""

from __future__ import annotations


def span(length_s: float) -> str:
    """Return a duration in its two largest units: ``12 min 3 s``."""
    minutes, seconds = divmod(int(length_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((at for at, (count, _) in enumerate(parts) if count), 3)
    shown = parts[first : first + 2] if parts[-1][0] or first < 2 else parts[first : first + 1]
    return " ".join(f"{count} {unit}" for count, unit in shown)


def between(least_s: float, most_s: float) -> str:
    """Return a range of durations in whole minutes: ``12 to 20 min``."""
    least, most = max(0, round(least_s) // 60), max(1, -(-round(most_s) // 60))
    if least == 0 or most < 60:
        return f"{least} to {most} min" if least else f"up to {span(60 * most)}"
    return f"{span(60 * least)} to {span(60 * most)}"
