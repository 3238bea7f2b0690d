"""A request that Ctrl-C or Airflow's time-out ends just after its grant. Its caller never sees the lease."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_hivelock.locks.manager import LockManager


@contextmanager
def no_unseen_lease(manager: LockManager, owner: str) -> Iterator[None]:
    """Release the lease of *owner* if an interruption ends the body, which acquires it.

    :param owner: a new owner, which has no other lease.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException:
        with suppress(StoreUnavailable):  # the caller needs the first error
            if granted := manager.lease_of(owner):
                manager.release(granted)
        raise
