"""The one error tree. Every message names the object or owner, the holder in the way, and the next step.

::

    HiveLockError
    ├── InvalidRequest        bad input; refused before anything is acquired (also a ValueError)
    │   ├── RequestTooLarge   more objects than one request may name or one transaction can carry
    │   ├── InvalidArguments  of a call on Hive leases
    │   └── ExceedsMaxLeaseTime  longer than a lease may last in this store; the lease keeps its current end
    ├── LockTimeout           not granted in time; ``blocked_by`` has the blockers
    │   └── LeaseAlreadyExists  of a call on Hive leases
    ├── LeaseMismatch         the owner already waits for or holds other objects
    ├── Superseded            a later attempt acts for this owner
    ├── Withdrawn             a person has withdrawn the request while it waited
    ├── LockLost              the lease is over, or another took it: stop the work under it
    ├── StoreUnavailable      the lock store cannot be reached or did not answer in time
    │   └── AccessDenied      the store refuses this process, or this operation; trying again does not help
    ├── CannotTell            it is unknown whether work has ended, or what Airflow has of it: conclude nothing
    ├── StoreCorrupted        the lock store holds something that this version cannot read
    │   └── UpgradeNeeded     it is for readers of a later version: upgrade airflow-hivelock here
    └── Unsupported           this backend cannot do it; the message gives the reason
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.invalid import HiveLockError as HiveLockError
from airflow_hivelock.locks.invalid import InvalidRequest as InvalidRequest
from airflow_hivelock.locks.invalid import RequestTooLarge as RequestTooLarge
from airflow_hivelock.locks.invalid import StoreCorrupted as StoreCorrupted
from airflow_hivelock.locks.invalid import UpgradeNeeded as UpgradeNeeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.model import Blocker


class InvalidArguments(InvalidRequest):
    """A call on Hive leases with invalid arguments; nothing was changed."""


class ExceedsMaxLeaseTime(InvalidRequest):
    """The lease would last longer than the store allows."""


class LockTimeout(HiveLockError, TimeoutError):
    """The locks were not granted in time; the request has left the queue."""

    def __init__(self, message: str, blocked_by: Sequence[Blocker] = ()) -> None:
        super().__init__(message)
        self.blocked_by = tuple(blocked_by)


class LeaseAlreadyExists(LockTimeout):
    """Another lease on the same objects is in the way; the message names its holder."""


class LeaseMismatch(HiveLockError):
    """The same owner already waits for or holds a different set of locks."""


class Superseded(HiveLockError):
    """A later attempt of the same owner has taken over; this one must stop."""


class Withdrawn(HiveLockError):
    """A person has withdrawn the request while it waited. It is not asked again by itself."""


class LockLost(HiveLockError):
    """The lease no longer protects its objects; stop everything that runs under it."""


class StoreUnavailable(HiveLockError):
    """The lock store is unreachable, or its answer did not arrive in time."""


class AccessDenied(StoreUnavailable):
    """The lock store refuses this client; correct the credentials or the store's permissions first."""


class CannotTell(HiveLockError):
    """A system that was asked about work gave no answer, so nothing may be concluded: work that may still run keeps its
    locks."""


class Unsupported(HiveLockError):
    """The backend declares that it cannot do this."""
