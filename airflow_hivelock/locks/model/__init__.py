"""The values that all other modules use. They are frozen, and checked when they are created, so no value is invalid."""

from airflow_hivelock.locks.model.group import Group, GroupUse, LeaseLimit, Member
from airflow_hivelock.locks.model.lease import (
    MAX_INVITATION_S,
    MAX_LEASE_S,
    MAX_PRIORITY,
    DeferredGrant,
    Lease,
    LockRequest,
    Work,
    check_priority,
    owner_key,
    put_work,
    token_of,
)
from airflow_hivelock.locks.model.listing import Blocker, ForcedRelease, Holder, Tenure, Waiter, WaitsFor
from airflow_hivelock.locks.model.object import (
    Lock,
    LockMode,
    LockObject,
    LockType,
    in_order,
    locks_from_json,
    locks_to_json,
)

__all__ = [
    "MAX_INVITATION_S",
    "MAX_LEASE_S",
    "MAX_PRIORITY",
    "Blocker",
    "DeferredGrant",
    "ForcedRelease",
    "Group",
    "GroupUse",
    "Holder",
    "Lease",
    "LeaseLimit",
    "Lock",
    "LockMode",
    "LockObject",
    "LockRequest",
    "LockType",
    "Member",
    "Tenure",
    "Waiter",
    "WaitsFor",
    "Work",
    "check_priority",
    "in_order",
    "locks_from_json",
    "locks_to_json",
    "owner_key",
    "put_work",
    "token_of",
]
