"""The errors of bad input, below the values that raise them; the tree is drawn in :mod:`.errors`, which names values."""

from __future__ import annotations


def printable(text: str) -> str:
    """*text* in one line of a terminal or a log: what has no sign of its own is shown as an escape, ``\\n`` or ``\\x1b``.

    Use it for text from a lock store. With a line break, such a text could forge a line of a log.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class HiveLockError(Exception):
    """Base of every error that this package raises on purpose.

    :param lines: the message, one line each: every one is made :func:`printable`, since it may name what others have written.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*map(printable, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class InvalidRequest(HiveLockError, ValueError):
    """The input cannot be a lock request; nothing was acquired."""


class RequestTooLarge(InvalidRequest):
    """The request names more objects than are allowed or fit into one transaction."""
