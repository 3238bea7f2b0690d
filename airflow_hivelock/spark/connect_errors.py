"""Errors of Spark Connect's client."""

from __future__ import annotations

_NO_ANSWER = {"SparkConnectGrpcException", "RetriesExceeded"}
"""The classes of errors of the connection, by name. Spark's own errors have subclasses with other names. Spark 4.0 has the
second one, and Spark 4.1 no longer.
"""


def unanswered(error: BaseException) -> bool:
    """Whether *error* means a lost connection, so that the server may still run the request."""
    return type(error).__name__ in _NO_ANSWER
