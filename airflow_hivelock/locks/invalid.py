"""The errors of bad input, below the values that raise them; the tree is drawn in :mod:`.errors`, which names values."""

from __future__ import annotations


class HiveLockError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidRequest(HiveLockError, ValueError):
    """The input cannot be a lock request; nothing was acquired."""


class RequestTooLarge(InvalidRequest):
    """The request names more objects than are allowed or fit into one transaction."""
