"""What many reads in one request tell, between which others write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.themes import LAGGING

if TYPE_CHECKING:
    import pytest


@mutation(theme=LAGGING)
def no_sync_in_a_new_session(patch: pytest.MonkeyPatch) -> None:
    """The next session is with a server that lags: what has been seen is not there."""
    edit(patch, KazooSession, "submit", "if session == self._synced", "if True")
