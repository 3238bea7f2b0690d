"""The rows of all stores as one table, with each kind of message once."""

from __future__ import annotations

import re
import socket
import string
from typing import TYPE_CHECKING

from tests.support import documented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.system.upgrade.scenes import Row

NAMES = {"zookeeper": "ZooKeeper", "postgresql": "PostgreSQL", "mariadb": "MariaDB", "sqlite": "SQLite"}
AIRFLOW = "airflow"
"""The rows of the real Airflow, which is no lock store."""

ENDS = "airflow-hivelock 0.1.0 on worker-7 reads formats 3 to 5: upgrade airflow-hivelock here too"
REFUSALS = ("refused: ", "suspect: ")


def table(rows: Sequence[Row]) -> str:
    """One line for each component and event, one column for each store, and the messages below."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row.store == AIRFLOW:
            continue
        event = re.sub(r" \(seed \d+\)", "", row.event)
        lines.setdefault((row.component, event), {})[row.store] = row.outcome
    stores = [store for store in NAMES if any(store in outcomes for outcomes in lines.values())]
    messages: dict[str, str] = {}
    text = documented.table(
        ["component", "event", *(NAMES[store] for store in stores)],
        (
            (*line, *(_short(outcomes.get(store, "not played"), messages) for store in stores))
            for line, outcomes in lines.items()
        ),
    )
    below = ["", "A message begins with the text of its letter, and ends with:", f"`{ENDS}`.", ""]
    below += [f"- {letter}: `{message}`" for message, letter in messages.items()]
    text += "".join(f"{line}\n" for line in below)
    if airflow := [row for row in rows if row.store == AIRFLOW]:
        real = ((row.component, row.event, row.outcome) for row in airflow)
        text += "\n" + documented.table(["on a real Airflow", "event", "outcome"], real)
    return text


def _short(outcome: str, messages: dict[str, str]) -> str:
    """The outcome; a message is the letter of its kind."""
    for kind in REFUSALS:
        if outcome.startswith(kind):
            message = _kind(outcome.removeprefix(kind))
            letter = messages.setdefault(message, string.ascii_lowercase[len(messages)])
            return f"{kind.rstrip(': ')}: {letter}"
    return outcome


def _kind(message: str) -> str:
    """The beginning of a message, without what differs from run to run."""
    message = message.replace(socket.gethostname(), "worker-7")
    message = re.sub(r"\b[0-9a-f]{16}\b", "…", message)
    begins, found, _ = message.removeprefix("its run is over, but ").partition(f". {ENDS}")
    assert found, f"another message: {message}"
    return begins
