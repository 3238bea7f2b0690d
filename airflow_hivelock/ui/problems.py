"""The texts of the page about a lock store that does not answer. They name no server, because every user may read them."""

from __future__ import annotations

from airflow_hivelock.locks.errors import AccessDenied, HiveLockError, InvalidRequest, StoreCorrupted, Unsupported

SILENT = {
    AccessDenied: "The lock store refuses Airflow's API server. Correct the credentials of the connection, or "
    "the store's permissions.",
    StoreCorrupted: "The lock store contains data that this version cannot read. Upgrade airflow-hivelock on the API server, or "
    "check the data there.",
    HiveLockError: "The lock store does not answer. Leases stay held and running jobs continue, but no lock is granted or "
    "released. A waiting task fails after ten minutes. Check that the store is up, and that the API server reaches it.",
}
MISCONFIGURED = (
    "Airflow's API server cannot use this connection: a setting is invalid, or a library is missing. The API server's log has "
    "the details. On the API server's host, airflow hivelock --conn-id {} check shows them, too."
)
ASK_WHY = "On the API server's host, airflow hivelock --conn-id {} -e \"SHOW LOCKS\" shows the reason. So does the API server's log."


def silent(error: HiveLockError, connection_id: str) -> str:
    """The text for an *error* of the lock store itself, or of its connection."""
    if isinstance(error, InvalidRequest | Unsupported):
        return MISCONFIGURED.format(connection_id)
    message = next(message for kind, message in SILENT.items() if isinstance(error, kind))
    return f"{message} {ASK_WHY.format(connection_id)}"


def unchanged(what: str, patience_s: float, connection_id: str) -> str:
    """The text for a change that did not begin in time.

    :param what: the change, as in "the release of lease 12".
    """
    return (
        f"Nothing was changed, because the lock store did not answer within {patience_s:g} s. {what[:1].upper()}{what[1:]} "
        f"will not happen later. Try again. {ASK_WHY.format(connection_id)}"
    )


def unknown(what: str, connection_id: str) -> str:
    """The text for a change with an unknown outcome."""
    return (
        f"The outcome of {what} is unknown, because the lock store did not answer in time. The change can still happen. "
        f"Look again before you repeat it. {ASK_WHY.format(connection_id)}"
    )
