"""A request that Ctrl-C, Airflow's time-out or an outage ends just after its grant. Its caller never sees the lease."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import AccessDenied, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.manager import LockManager

log = logging.getLogger(__name__)


@contextmanager
def no_unseen_lease(manager: LockManager, owner: str) -> Iterator[None]:
    """Release the lease of *owner* if an interruption ends the body, which acquires it. Log a lease that may remain.

    :param owner: a new owner, which has no other lease.
    """
    try:
        yield
    except AccessDenied:
        raise
    except StoreUnavailable:  # the store may have granted the request before its answer was lost
        _log_remaining(owner)
        raise
    except Exception:
        raise
    except BaseException:
        try:
            if granted := manager.lease_of(owner):
                manager.release(granted)
        except StoreUnavailable:  # the caller needs the first error
            _log_remaining(owner)
        raise


def _log_remaining(owner: str) -> None:
    log.warning(
        "The lock store does not answer. If it has granted a lease to %s, the lease stays: SHOW LEASE * lists it when the store "
        "answers. A waiting request leaves the queue by itself",
        owner,
    )
