"""Publication: output is staged in a directory of its own, and becomes the table's or partition's by a change of
location.

Each output is a *generation*, a directory named by the token that wrote it. A job publishes in this order:

1. It checks whether a later generation was published, and whether its token is current; if not, nothing is changed.
2. It sets the location to its generation. For a table, a metastore that compares (Hive 2.3.10, and 4; HIVE-26882 and
  HIVE-28121) does that only if the table was not altered since 1. For a partition no metastore compares.
3. It marks its generation as published, and looks back. If a later one is marked, it sets the location to that, and
  fails. If the location is no longer its own although no later one is marked, it begins again at 1.

Between 1 and 2 a window remains for partitions. Suppose that a job is stopped there for so long that another publishes.
When it continues, it undoes that, and puts it back in 3, milliseconds later. For any two jobs, one writes its location
before the other has set its mark. It then sees the mark, or the other sees it (as in Dekker's mutual exclusion). The
older data stays only if the job is killed between its late 2 and 3.

A location is changed, and nothing is renamed. So a reader that has listed the files can finish, even on an object
store, where a rename copies. A reader by path, not by the metastore, does not see the new data.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockLost, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

TURNS = 10
"""How often it begins again because another client has altered the table at the same moment."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """A staged or published output.

    :param path: of its directory.
    :param token: of the job that wrote it.
    """

    path: str
    token: int


@dataclass(frozen=True)
class Relocation:
    """A change of location, ready to be made.

    :param location: the metastore's location until then; None if there is no such partition yet.
    :param make: make it; False if the table or partition is known to have been altered since, and nothing was done.
    """

    location: str | None
    make: Callable[[], bool]


class Place(Protocol):
    """A table or partition: its location in the metastore, and the directories of its generations."""

    def stage(self, token: int) -> str:
        """The path of a new generation, which does not exist yet."""
        ...

    def generations(self) -> Collection[Generation]:
        """The generations that exist."""
        ...

    def published(self, generation: Generation) -> bool:
        """Whether it is marked as published."""
        ...

    def mark(self, path: str) -> None:
        """Mark the generation at *path* as published."""
        ...

    def change(self, path: str) -> Relocation:
        """The change from the metastore's present location to *path*."""
        ...

    def discard(self, paths: Collection[str]) -> None:
        """Remove directories of former data, if they belong to this place."""
        ...

    def former(self, live: str) -> Collection[str]:
        """Further paths of former data: Hive's default location, unless that is *live*."""
        ...

    def close(self) -> None:
        """Close the connections, and refresh the session's view of the table."""
        ...


class Publication:
    """One generation, from its staging to its end.

    :param check: the last check of the lock store; raises LockLost.
    """

    def __init__(self, place: Place, token: int, check: Callable[[], None]) -> None:
        self._place = place
        self._token = token
        self._check = check
        self._path = ""
        self._marked = False

    def begin(self) -> str:
        """The path to write to.

        :raises LockLost: a later generation was published.
        """
        self._refuse_if_late()
        self._path = self._place.stage(self._token)
        return self._path

    def publish(self) -> None:
        """Make the staged output the data.

        :raises LockLost: the token is not current any more, or a later generation was published; the later one stays.
        :raises InvalidRequest: nothing was staged.
        :raises StoreUnavailable: the metastore does not answer, or others alter the table all the time.
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
        """Remove output that was staged and not published. Published output stays, even while a late job has undone it,
        to be put back."""
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
        """Remove data older than the data that was just replaced. Readers may still use the latter."""
        kept = {self._path, replaced}
        earlier = [one.path for one in self._place.generations() if one.token <= self._token]
        former = {*earlier, *self._place.former(self._path)} - kept
        if former:
            self._check()  # a later job may have started to use one of them
            self._place.discard(former)

    def _refuse_if_late(self) -> None:
        if later := self._later():
            raise self._late(later)

    def _later(self) -> Generation | None:
        """The latest generation that was published with a larger token."""
        larger = (one for one in self._place.generations() if one.token > self._token)
        return max(filter(self._place.published, larger), key=lambda one: one.token, default=None)

    def _late(self, later: Generation) -> LockLost:
        return LockLost(
            f"{self._place}: not published with token {self._token}, because token {later.token} has published {later.path}. "
            "Clear the task to do the work again. If the lock store was created again, its tokens start again: then "
            "remove that directory's mark first"
        )
