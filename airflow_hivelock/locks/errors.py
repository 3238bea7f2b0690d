"""All errors of this package, in one tree. A message names the object or owner, the blocker, and the next step.

::

    HiveLockError
    ├── InvalidRequest        the input is invalid; nothing was acquired (also a ValueError)
    │   ├── RequestTooLarge   the request has more objects than are allowed, or than one transaction can contain
    │   ├── InvalidArguments  the same, of a call on Hive leases
    │   └── ExceedsMaxLeaseTime  the lease would last longer than the store allows; it keeps its current end
    ├── LockTimeout           the locks were not granted in time; ``blocked_by`` has the blockers
    │   └── LeaseAlreadyExists  the same, of a call on Hive leases
    ├── LeaseMismatch         the owner already waits for or holds other locks
    ├── Superseded            a later attempt acts for this owner; this one must stop
    ├── Withdrawn             a person withdrew the request while it waited
    ├── LockLost              the lease has ended, or another process has it: stop the work under it
    ├── StoreUnavailable      the lock store is unreachable, or did not answer in time
    │   └── AccessDenied      the store refuses this process or this operation; trying again does not help
    ├── CannotTell            a cluster or Airflow gave no answer about work; the work may still run
    ├── StoreCorrupted        the lock store contains data that this version cannot read
    │   └── UpgradeNeeded     a later version wrote the data: upgrade airflow-hivelock in this process
    └── Unsupported           this lock store cannot do it; the message gives the reason
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
    """The locks were not granted in time. The request has left the queue."""

    def __init__(self, message: str, blocked_by: Sequence[Blocker] = ()) -> None:
        super().__init__(message)
        self.blocked_by = tuple(blocked_by)


class LeaseAlreadyExists(LockTimeout):
    """Another lease on the same objects is in the way; the message names its holder."""


class LeaseMismatch(HiveLockError):
    """The same owner already waits for or holds a different set of locks."""


class Superseded(HiveLockError):
    """A later attempt of the same owner has taken over. This one must stop.

    :ivar attempt: the number of the attempt that has taken over. 0: the store did not read it.
    """

    def __init__(self, *message: str, attempt: int = 0) -> None:
        super().__init__(*message)
        self.attempt = attempt


class Withdrawn(HiveLockError):
    """A person withdrew the request while it waited. The owner does not ask again by itself."""


class LockLost(HiveLockError):
    """The lease no longer protects its objects. Stop all work under it."""


class StoreUnavailable(HiveLockError):
    """The lock store is unreachable, or did not answer in time."""


class AccessDenied(StoreUnavailable):
    """The lock store refuses this client. Correct the credentials, or the permissions in the store."""


class CannotTell(HiveLockError):
    """A cluster or Airflow gave no answer about work. The work may still run, so it keeps its locks."""


class Unsupported(HiveLockError):
    """This lock store cannot do it."""
