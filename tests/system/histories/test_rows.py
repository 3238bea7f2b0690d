"""The trace of a database: real processes under faults, and faults that are put into the code by hand."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import bindparam, delete

from airflow_hivelock.locks import LockManager, connect, invitations, permits, queueing
from airflow_hivelock.locks.backends.database import DatabaseBackend
from airflow_hivelock.locks.backends.database.candidate import Candidate
from airflow_hivelock.locks.backends.database.dialect import DatabaseDialect
from airflow_hivelock.locks.backends.database.postgresql import PostgreSQL
from airflow_hivelock.locks.backends.database.record import Record, State
from airflow_hivelock.locks.backends.database.request import RequestedLocks
from airflow_hivelock.locks.backends.database.store import Store
from tests.support.servers import MariaDBServer
from tests.system.histories.story import TAKEN, Story
from tests.system.histories.trace.audit import Audit, name_transactions
from tests.system.histories.trace.validate import Trace, validate_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Delete


LOGGED = {"log-bin": "log", "server-id": "1"}
"""What the audit needs of a MariaDB."""

_numbers = itertools.count()


def audited(manager: LockManager) -> Audit:
    assert isinstance(manager.backend, DatabaseBackend)
    return Audit(manager.backend.store)


@pytest.fixture(scope="module")
def mysql(mariadb_asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDBServer]:
    with MariaDBServer(tmp_path_factory.mktemp("mariadb"), config=LOGGED) as server:
        yield server


@pytest.fixture
def audited_mysql_url(mysql: MariaDBServer) -> str:
    """The URL of an empty set of tables."""
    return f"{mysql.url}?schema=trace_{next(_numbers)}"


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.integration) for name in ("postgres", "audited_mysql"))]
)
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def trace_of_a_story(url: str) -> Trace:
    name_transactions()
    with connect(url) as manager:
        audit = audited(manager)
        story = Story(manager)
        story.play()
        found = validate_rows(audit.transactions(), story.returned, passing_s=3600, dead_s=30)
    print(found, *found.wrong, sep="\n")
    return found


def test_a_story_of_the_code_as_it_is_follows_the_specification(url: str) -> None:
    told = trace_of_a_story(url)
    assert told.wrong == []
    assert told.actions.keys() >= TAKEN


# Faults.


def enters_beside_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is in the way of another."""
    monkeypatch.setattr(queueing, "in_the_way", lambda *_: [])


def the_queue_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a lease is in the way, and no request that waits."""
    monkeypatch.setattr(queueing, "in_the_way", lambda _, others: [other for other in others if other.holds])


def every_arrival_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new arrival takes the turn of the first that waits, of whatever priority."""
    monkeypatch.setattr(
        queueing, "join", lambda own, waiting, limit: own.claiming(min(waiting, default=own).position.number, [], limit)
    )


def release_leaves_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a request leaves its rows of shared locks. Nothing in the story waits for those."""

    def without_locks(store: Store) -> Delete:
        lock = store.tables.lock
        return delete(lock).where(lock.c.place == bindparam("of_place"), lock.c.lease_type == "x")

    monkeypatch.setattr(Store, "without_locks", property(without_locks))
    monkeypatch.setattr(PostgreSQL, "end", DatabaseDialect.end)


def a_lock_gets_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lock of a request is written to its record only."""
    original = RequestedLocks.__init__

    def made(self: RequestedLocks, *args: Any) -> None:
        original(self, *args)
        self.rows = json.dumps(json.loads(self.rows)[:-1])

    monkeypatch.setattr(RequestedLocks, "__init__", made)


def permits_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "in_the_way_of_permit", lambda *_: [])


def stored_limit_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "limit", lambda own, stored: own)


def heavy_holder_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Candidate.other
    monkeypatch.setattr(Candidate, "other", lambda *args, **given: original(*args, **given)._replace(weight=1))


def _decided(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Each grant writes these values."""
    original = Record.decided

    def decided(self: Record, *args: Any) -> Record:
        found = original(self, *args)
        return found._replace(**changes) if found.holds else found  # type: ignore[arg-type]

    monkeypatch.setattr(Record, "decided", decided)


def grant_takes_no_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    _decided(monkeypatch, group_key=None)


def grant_has_an_old_token(monkeypatch: pytest.MonkeyPatch) -> None:
    _decided(monkeypatch, token=1)


def take_over_keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Store.put

    def put(self: Store, transaction: Any, record: Record, existing: Record | None, *args: Any) -> Any:
        if existing and existing.place == record.place and existing.process != record.process:
            record = record._replace(epoch=existing.epoch)
        return original(self, transaction, record, existing, *args)

    monkeypatch.setattr(Store, "put", put)


def invitations_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter ends the invitation that it waits for, at any time."""
    monkeypatch.setattr(Store, "over", property(lambda store: store.tables.in_state(State.INVITED)))
    monkeypatch.setattr(invitations, "is_over", lambda *_: True)


FAULTS = {
    enters_beside_holders: "NoTwoConflictingLeases",
    the_queue_is_not_read: "EarlierGoesFirst",
    every_arrival_passes: "it claims the position of no request that it may overtake",
    release_leaves_rows: "NothingLeft: a lock node on dw",
    a_lock_gets_no_row: "LeaseHasItsNodes: no lock node on dw/t/dt=1",
    permits_are_not_counted: "it takes permit 2 of 1",
    stored_limit_is_ignored: "it takes permit 3 of 2",
    heavy_holder_counts_once: "it takes permit 3 of 2",
    grant_takes_no_permit: "PermitsMatchRecords",
    grant_has_an_old_token: "the token does not grow",
    take_over_keeps_the_epoch: "the epoch does not grow",
    invitations_end_at_once: "the invitation ends in",
}


@pytest.mark.parametrize(("fault", "told"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", None))
def test_the_trace_alone_shows_a_fault(
    fault: Callable[[pytest.MonkeyPatch], None], told: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = trace_of_a_story(url)
    assert any(told in wrong for wrong in found.wrong), found.wrong
