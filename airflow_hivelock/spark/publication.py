"""Publishes a job's output: the job stages it in a directory, and then changes the location of the table or partition.

Each output is a *generation*: a directory whose name starts with the token of its job. A job publishes in this order:

1. It checks that no later generation was published, and that its token is current. Otherwise it changes nothing.
2. It sets the location to its generation. For a table, a metastore that compares (Hive 2.3.10, and 4; HIVE-26882 and
  HIVE-28121) does that only if the table was not altered since step 1. For a partition no metastore compares.
3. It marks its generation as published, and checks again. If a later generation is marked, it sets the location to
  that one, and fails. If the location is another one without a later mark, it starts again at step 1.

For partitions a window remains between steps 1 and 2. If a job pauses there while another job publishes, it undoes that
publication in step 2, and restores it in step 3, milliseconds later. Of any two jobs, one sets its location before the
other sets its mark. So one of them sees the other's mark, as in Dekker's mutual exclusion. The older data stays only if
the job is killed between its late step 2 and step 3.

A publication changes a location, and renames no file. So a reader that has listed the old files can finish, even on an
object store, where a rename copies. A reader that uses a path instead of the metastore does not see the new data.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockLost, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

TURNS = 10
"""The largest number of attempts, because other clients can alter the table at the same time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """A staged or published output.

    :param path: the path of its directory.
    :param token: the token of the job that wrote it.
    """

    path: str
    token: int


@dataclass(frozen=True)
class Relocation:
    """A prepared change of location.

    :param location: the present location in the metastore; None if the partition does not exist yet.
    :param make: makes the change. It returns False if another client has altered the object, and then changes nothing.
    """

    location: str | None
    make: Callable[[], bool]


class Place(Protocol):
    """A table or partition: its location in the metastore, and the directories of its generations."""

    def stage(self, token: int) -> str:
        """The path of a new generation, which does not exist yet."""
        ...

    def generations(self) -> Collection[Generation]:
        """The existing generations."""
        ...

    def published(self, generation: Generation) -> bool:
        """Whether *generation* is marked as published."""
        ...

    def mark(self, path: str) -> None:
        """Mark the generation at *path* as published."""
        ...

    def change(self, path: str) -> Relocation:
        """The change from the present location in the metastore to *path*."""
        ...

    def discard(self, paths: Collection[str]) -> None:
        """Remove the directories *paths* with former data."""
        ...

    def former(self, live: str) -> Collection[str]:
        """Other paths of former data: Hive's default location, unless that is *live*."""
        ...

    def close(self) -> None:
        """Close the connections, and refresh the session's cache of the table."""
        ...


class Publication:
    """Publishes one generation.

    :param check: checks the lease in the lock store, and raises LockLost.
    """

    def __init__(self, place: Place, token: int, check: Callable[[], None]) -> None:
        self._place = place
        self._token = token
        self._check = check
        self._path = ""
        self._marked = False

    def begin(self) -> str:
        """Return the path to write to.

        :raises LockLost: a later generation was published.
        """
        self._refuse_if_late()
        self._path = self._place.stage(self._token)
        return self._path

    def publish(self) -> None:
        """Publish the staged output.

        :raises LockLost: the token is no longer current, or a later generation was published. The later one stays.
        :raises InvalidRequest: there is no staged output.
        :raises StoreUnavailable: the metastore does not answer, or other clients altered the table at each attempt.
        """
        if self._path not in {one.path for one in self._place.generations()}:
            self._refuse_if_late()  # a later publication has removed it
            self._check()
            raise InvalidRequest(
                f"{self._place} is not published, because {self._path} has no output. Write to that path first"
            )
        replaced = self._switch()
        self._place.mark(self._path)
        self._marked = True
        self._settle()
        self._tidy(replaced)

    def end(self) -> None:
        """Remove output that was not published. Published output stays, even if a late job has just undone it, because
        that job restores it."""
        try:
            if self._path and not self._marked and self._place.change(self._path).location != self._path:
                self._place.discard([self._path])
        except HiveLockError as error:
            log.warning("%s could not be removed: %s", self._path, error)
        finally:
            self._place.close()

    def _switch(self) -> str | None:
        for _ in range(TURNS):
            change = self._place.change(self._path)
            self._refuse_if_late()
            self._check()
            if change.make():
                return change.location
        raise StoreUnavailable(
            f"{self._place} is not published, because other clients altered it {TURNS} times meanwhile. Try again"
        )

    def _settle(self) -> None:
        for _ in range(TURNS):
            later = self._later()
            newest = later.path if later else self._path
            change = self._place.change(newest)
            if change.location == newest:
                if later:
                    raise self._late(later)
                return
            if not later:
                self._check()
            log.warning("The location of %s is %s. Setting it to %s", self._place, change.location, newest)
            change.make()
        raise StoreUnavailable(
            f"{self._place}: other clients have changed its location {TURNS} times. Look up its location in the metastore"
        )

    def _tidy(self, replaced: str | None) -> None:
        """Remove older data, except the data that was just replaced, because readers can still use that."""
        kept = {self._path, replaced}
        earlier = [one.path for one in self._place.generations() if one.token <= self._token]
        former = {*earlier, *self._place.former(self._path)} - kept
        if former:
            self._check()  # a later job can have started to use one of them
            self._place.discard(former)

    def _refuse_if_late(self) -> None:
        if later := self._later():
            raise self._late(later)

    def _later(self) -> Generation | None:
        """The latest published generation with a larger token; None if there is none."""
        larger = (one for one in self._place.generations() if one.token > self._token)
        return max(filter(self._place.published, larger), key=lambda one: one.token, default=None)

    def _late(self, later: Generation) -> LockLost:
        return LockLost(
            f"{self._place}: not published with token {self._token}, because token {later.token} has published {later.path}. "
            "Clear the task to do the work again. If the lock store was created again, its tokens start again: then "
            "remove that directory's mark first"
        )
