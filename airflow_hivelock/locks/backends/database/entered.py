"""The data that transactions and notifiers read of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.backends.database.candidate import Candidate
    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.model import Group


class Living(NamedTuple):
    """A request that blocks others.

    :param phase: as in :func:`.candidate.phase`.
    :param waits: it waits for another request, and no partial release has ended that wait.
    :param watched: other processes are notified when it ends.
    """

    epoch: int
    phase: str
    waits: bool
    watched: bool


class Entered(NamedTuple):
    """The data that a transaction reads after it has kept out all others that matter.

    :param number: larger than any before.
    :param record: the owner's.
    :param conflicting: the requests that wait for or hold what the owner's locks exclude.
    :param group: the requests of the group that wait for or have a lease.
    :param stored: the settings of the group.
    """

    now_us: int
    number: int
    record: Record | None
    conflicting: Sequence[Candidate] = ()
    group: Sequence[Candidate] = ()
    stored: Group | None = None
