"""What many reads in one request tell, between which others write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.backends.zookeeper import wire
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.simulation.mutations.mutation import edit, mutation
from tests.simulation.themes import LAGGING, READ_TOGETHER

if TYPE_CHECKING:
    import pytest


@mutation(seed=113, theme=READ_TOGETHER)
def counted_after_the_names(patch: pytest.MonkeyPatch) -> None:
    """A lock of Hive's comes between the names and the count, which then says that none has come since."""
    edit(patch, wire, "reply", "_created(before)", "_created(after)")


@mutation(theme=LAGGING)
def no_sync_in_a_new_session(patch: pytest.MonkeyPatch) -> None:
    """The next session is with a server that lags: what has been seen is not there."""
    edit(patch, KazooSession, "submit", "if session == self._synced", "if True")
