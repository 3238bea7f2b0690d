"""One suite that every backend passes. Subclass it, and give it a ``connect`` fixture::

    class TestMine(BackendConformance, capabilities=MyBackend.capabilities):
        @pytest.fixture
        def connect(self):
            def connect(**options):    # passing_s, where the store orders by priority
                return LockManager(MyBackend(..., **options))    # a new session with the same empty store

            return connect

A test that needs a capability is absent for a backend that does not declare it. Another test checks what that
backend does instead.

No test depends on a lucky sleep. A request that must wait is polled until the backend returns Blocked. A request that
must be granted waits for its wake-up, within :data:`~.suite.PATIENCE_S`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock.locks.errors import Unsupported
from airflow_hivelock.locks.model import Lease, Work
from tests.conformance.acquiring import Acquiring
from tests.conformance.away import GoingAway
from tests.conformance.changed_priority import ChangingPriority
from tests.conformance.groups import Grouping
from tests.conformance.invitations import Inviting
from tests.conformance.leases import Leases
from tests.conformance.limits import Limiting
from tests.conformance.parts import GivingBack
from tests.conformance.priority import Prioritizing
from tests.conformance.queue import Queueing
from tests.conformance.suite import DAY1, Polling, where
from tests.conformance.withdrawal import Withdrawing

if TYPE_CHECKING:
    from airflow_hivelock.locks.backend import Capabilities
    from airflow_hivelock.locks.manager import LockManager

__all__ = ["BackendConformance", "Polling"]


class BackendConformance(
    Acquiring,
    Queueing,
    Prioritizing,
    ChangingPriority,
    GoingAway,
    Inviting,
    Limiting,
    Grouping,
    Leases,
    GivingBack,
    Withdrawing,
):
    """See the module's text."""

    def __init_subclass__(cls, capabilities: Capabilities | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.declares = capabilities or cls.declares
        for name in dir(cls):
            if name.startswith("test_"):
                declared = getattr(getattr(cls, name), "declared", {"acquires": True})
                if any(so not in (None, getattr(cls.declares, what)) for what, so in declared.items()):
                    setattr(cls, name, None)

    @where(acquires=None)
    def test_it_promises_what_the_suite_was_told(self, manager: LockManager) -> None:
        assert manager.capabilities == self.declares

    @where(acquires=False)
    def test_what_only_looks_takes_and_frees_nothing(self, manager: LockManager) -> None:
        with pytest.raises(Unsupported, match=r"show|look"):
            manager.acquire(owner="me", writes=[DAY1])
        lease = Lease("another-1", 1, 0, 0, "me", (), 60.0, manager.now())
        calls = (
            lambda: manager.release(lease),
            lambda: manager.renew(lease),
            lambda: manager.verify(lease),
            lambda: manager.start_work(lease, "delays", "app-1"),
            lambda: manager.check_token(lease.id, "delays", 1),
            lambda: manager.force_release(lease.id, reason="testing", user="ops"),
            lambda: manager.force_record(lease.id, Work("delays", "app-1", 1), "", reason="testing", user="ops"),
        )
        for call in calls:
            with pytest.raises(Unsupported, match="another-1"):
                call()
        assert not [*manager.leases(), *manager.history(), *manager.audit()]
        assert manager.find(lease.id) is None
        assert manager.lease_of("me") is None
        assert manager.sweep() == 0
