"""The one error tree. Every message names the object or owner, who is in the way, and what to do next.

::

    HiveLockError
    ├── InvalidRequest        bad input; refused before anything is acquired (also a ValueError)
    │   ├── RequestTooLarge   more objects than one request may name or one transaction can carry
    │   ├── InvalidArguments  of a call on Hive leases
    │   └── ExceedsMaxLeaseTime  longer than a lease may last in this store; it keeps the end that it has
    ├── LockTimeout           not granted in time; ``blocked_by`` says who was in the way
    │   └── LeaseAlreadyExists  of a call on Hive leases
    ├── LeaseMismatch         the owner already waits for or holds other objects
    ├── Superseded            a later attempt acts for this owner
    ├── LockLost              the lease is over, or another took it: stop the work under it
    ├── StoreUnavailable      the lock store cannot be reached or did not answer in time
    │   └── AccessDenied      it does not let this process in, or not there; trying again does not help
    ├── CannotTell            whether work has ended, or what Airflow has of it: nothing may be concluded
    ├── StoreCorrupted        the lock store holds something that this version cannot read
    └── Unsupported           this backend cannot do it, and says why
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.invalid import HiveLockError as HiveLockError
from airflow_hivelock.locks.invalid import InvalidRequest as InvalidRequest
from airflow_hivelock.locks.invalid import RequestTooLarge as RequestTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.model import Blocker


class InvalidArguments(InvalidRequest):
    """A call on Hive leases that cannot be meant; nothing was changed."""


class ExceedsMaxLeaseTime(InvalidRequest):
    """The lease would last longer than the store allows."""


class LockTimeout(HiveLockError, TimeoutError):
    """The locks were not granted in time; the place in the queue has been given up."""

    def __init__(self, message: str, blocked_by: Sequence[Blocker] = ()) -> None:
        super().__init__(message)
        self.blocked_by = tuple(blocked_by)


class LeaseAlreadyExists(LockTimeout):
    """Another lease on the same objects is in the way; the message names its holder."""


class LeaseMismatch(HiveLockError):
    """The same owner already waits for or holds a different set of locks."""


class Superseded(HiveLockError):
    """A later attempt of the same owner has taken over; this one must stop."""


class LockLost(HiveLockError):
    """The lease no longer protects its objects; whatever runs under it must be stopped."""


class StoreUnavailable(HiveLockError):
    """The lock store is unreachable, or its answer did not arrive in time."""


class AccessDenied(StoreUnavailable):
    """The lock store refuses who asks; the credentials or its permissions have to be put right first."""


class CannotTell(HiveLockError):
    """Whoever was asked gave no answer, so nothing may be concluded: what may still run keeps its locks."""


class StoreCorrupted(HiveLockError):
    """The lock store holds data that is malformed or of a newer format."""


class Unsupported(HiveLockError):
    """The backend declares that it cannot do this."""
