"""The errors of bad input and of unreadable data. They are a module of their own because :mod:`.errors`, with the whole
tree, imports the model."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return *text* as one line for a terminal or a log: an unprintable character becomes an escape, ``\\n`` or
    ``\\x1b``.

    Use it for text from a lock store. With a line break, such a text could forge a line of a log.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


MAX_REASON_LENGTH = 2_000
"""The greatest length of a reason, and of the user who gives it, in characters."""


def one_line(text: object) -> str:
    """Return a reason or a user as one line, without double spaces; ``""`` if the audit trail cannot keep it."""
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return line if line.isprintable() and len(line) <= MAX_REASON_LENGTH else ""


class HiveLockError(Exception):
    """Base of every error that this package raises on purpose.

    :param lines: the lines of the message. Each is made :func:`printable`, since it may contain text that other clients
        wrote.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*map(printable, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class InvalidRequest(HiveLockError, ValueError):
    """The input cannot be a lock request; nothing was acquired."""


class RequestTooLarge(InvalidRequest):
    """The request names more objects than are allowed or fit into one transaction."""


class StoreCorrupted(HiveLockError):
    """The lock store holds data that is malformed, or that this version cannot read."""


class UpgradeNeeded(StoreCorrupted):
    """The data is for readers of a later version: upgrade airflow-hivelock in this process."""
