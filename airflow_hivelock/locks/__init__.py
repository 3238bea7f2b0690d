"""The lock manager: Hive's table and partition locks, without Airflow.

Read :mod:`.model` and :mod:`.rules` first, then :mod:`.manager`, then one of :mod:`.backends`.
"""

from airflow_hivelock.locks.backend import Blocked, NeedsSlot
from airflow_hivelock.locks.connect import connect
from airflow_hivelock.locks.errors import (
    AccessDenied,
    CannotTell,
    ExceedsMaxLeaseTime,
    HiveLockError,
    InvalidArguments,
    InvalidRequest,
    LeaseAlreadyExists,
    LeaseMismatch,
    LockLost,
    LockTimeout,
    RequestTooLarge,
    StoreCorrupted,
    StoreUnavailable,
    Superseded,
    Unsupported,
    UpgradeNeeded,
    Withdrawn,
)
from airflow_hivelock.locks.hive_leases import HiveLease, HiveLeases
from airflow_hivelock.locks.manager import LockManager
from airflow_hivelock.locks.model import (
    Blocker,
    ForcedRelease,
    Holder,
    Lease,
    LeaseLimit,
    Lock,
    LockMode,
    LockObject,
    LockRequest,
    Tenure,
    Waiter,
    WaitsFor,
    Work,
)
from airflow_hivelock.locks.pending import PendingLease, PendingLook, Silent

__all__ = [
    "AccessDenied",
    "Blocked",
    "Blocker",
    "CannotTell",
    "ExceedsMaxLeaseTime",
    "ForcedRelease",
    "HiveLease",
    "HiveLeases",
    "HiveLockError",
    "Holder",
    "InvalidArguments",
    "InvalidRequest",
    "Lease",
    "LeaseAlreadyExists",
    "LeaseLimit",
    "LeaseMismatch",
    "Lock",
    "LockLost",
    "LockManager",
    "LockMode",
    "LockObject",
    "LockRequest",
    "LockTimeout",
    "NeedsSlot",
    "PendingLease",
    "PendingLook",
    "RequestTooLarge",
    "Silent",
    "StoreCorrupted",
    "StoreUnavailable",
    "Superseded",
    "Tenure",
    "Unsupported",
    "UpgradeNeeded",
    "Waiter",
    "WaitsFor",
    "Withdrawn",
    "Work",
    "connect",
]
