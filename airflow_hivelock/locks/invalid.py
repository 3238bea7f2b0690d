"""The errors of invalid input and of unreadable data. The model raises them, and :mod:`.errors` imports the model. So
they are in a separate module."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return *text* as one line for a terminal or a log, with escapes such as ``\\n`` for unprintable characters.

    Use it for text from a lock store. With a line break, such a text could forge a line of the log.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


MAX_REASON_LENGTH = 2_000
"""The greatest length of a reason, and of the user who gives it, in characters."""


def one_line(text: object) -> str:
    """Return a reason or a user as one line without double spaces. ``""``: the audit trail cannot keep it."""
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return line if line.isprintable() and len(line) <= MAX_REASON_LENGTH else ""


class HiveLockError(Exception):
    """The base class of this package's errors.

    :param lines: the lines of the message. They can contain text of other clients, so each is made :func:`printable`.
    :ivar of_connection: whether the connection causes it. The message can then contain its host, login and options.
    """

    of_connection = False

    def __init__(self, *lines: str) -> None:
        super().__init__(*map(printable, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class InvalidRequest(HiveLockError, ValueError):
    """The input is invalid. Nothing was acquired."""


class RequestTooLarge(InvalidRequest):
    """The request has more objects than are allowed, or than one transaction can contain."""


class StoreCorrupted(HiveLockError):
    """The lock store contains data that this version cannot read."""


class UpgradeNeeded(StoreCorrupted):
    """A later version wrote the data. Upgrade airflow-hivelock in this process."""
