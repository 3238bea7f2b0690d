"""Reads lock stores and the states of work once for all users, and caches the answers as text."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import HTTPException, Response
from fastapi.concurrency import run_in_threadpool

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import HiveLockError, StoreUnavailable
from airflow_hivelock.locks.expected import MOST_READ, PastHolds, expected_waits
from airflow_hivelock.ui import access, hiding, holders, view, works
from airflow_hivelock.ui.lock_rows import LockRows
from airflow_hivelock.ui.reads import SharedReads, Uncollected

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Lease, Waiter
    from airflow_hivelock.ui.hiding import View
    from airflow_hivelock.ui.works import WorkState

log = structlog.get_logger(__name__)

PATIENCE_S = 8.0
"""The longest wait of a request for the lock store, in seconds."""

FRESH_S = 1.5
HOLDERS_FRESH_S, HOLDERS_KEPT_S = 5.0, 60.0
"""A read of Hive's whole namespace is slow. It runs in the background, and the page shows its last answer.
"""

WORKS_FRESH_S, WORKS_WAIT_S = 15.0, 4.0
MOST_ASKED = 50
"""The largest number of leases whose work is checked for the list."""

LITTLE_S = 0.05
"""The longest wait of a request for background reads, in seconds. The page soon asks again for missing answers."""

HISTORY_FRESH_S = 15.0
PAST_FRESH_S, PAST_KEPT_S = 300.0, 3_600.0
CONNECTIONS_FRESH_S = 10.0
CLOCK_S = 300.0
"""The time for which the offset from the store's clock is cached, in seconds, because to read that clock is a write."""
MOST_SHOWN = 50
COMPRESSION = 5

reads = SharedReads("store", PATIENCE_S)
asks = SharedReads("clusters", WORKS_WAIT_S, threads=32)
"""The pool for questions to clusters. A silent cluster blocks only this pool, not the reads."""

_uncollected = Uncollected()
_shown: dict[tuple[str, Hashable], Shown] = {}
_rows: defaultdict[str, LockRows] = defaultdict(LockRows)
"""By connection, the rows of the last list of holders and waiters."""

_need_action: dict[str, tuple[Lease, ...]] = {}
"""By connection, the leases that need a user's action. Their work is checked for the page."""


class StoreClock:
    """The store's time, from its last answer and this process's monotonic clock."""

    def __init__(self) -> None:
        self._asked: tuple[float, float] | None = None

    def now_ms(self, manager: LockManager) -> int:
        if self._asked is None or time.monotonic() - self._asked[0] > CLOCK_S:
            store_ms = manager.now().timestamp() * 1000
            self._asked = time.monotonic(), store_ms
        at, store_ms = self._asked
        return int(store_ms + (time.monotonic() - at) * 1000)


_clocks: defaultdict[str, StoreClock] = defaultdict(StoreClock)


async def current(connection_id: str) -> Shown:
    """The holders and the waiters."""
    need_action = _need_action.get(connection_id)
    shown_locks, past, answers = None, None, {}
    if need_action is not None:  # the first look has to be quick
        shown_locks = await reads.glance(
            (connection_id, "holders"), lambda: _holders(connection_id), HOLDERS_FRESH_S, HOLDERS_KEPT_S, LITTLE_S
        )
        past = await reads.glance(
            (connection_id, "past"), lambda: _past_holds(connection_id), PAST_FRESH_S, PAST_KEPT_S, LITTLE_S
        )
        asked = need_action[:MOST_ASKED]
        found = await asyncio.gather(*(work_under(lease, WORKS_FRESH_S, LITTLE_S) for lease in asked))
        answers = {lease.id: answer for lease, answer in zip(asked, found, strict=True) if answer}

    def read(hook: HiveLockHook, now_ms: int) -> View:
        manager = hook.manager()
        held, waiting = manager.requests()
        expires, sensors = manager.capabilities.expires, access.sensors(connection_id)
        ends = _expected_ends(past, held, waiting, now_ms) if past else {}
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        shown = view.current(
            held,
            [waiter.as_of(now) for waiter in waiting],
            shown_locks,
            hook.installation,
            expires=expires,
            sensors=sensors,
            expected=ends,
            rows=_rows[connection_id],
        )
        holders.judge(shown.data, now_ms, access.task_facts, answers)
        needs = {row["id"] for row in shown.data["leases"] if row["doing"] == "needs"}
        _need_action[connection_id] = tuple(lease for lease in held if lease.id in needs)
        return shown

    return await shared_view(connection_id, "current", read, FRESH_S)


async def work_under(lease: Lease, fresh_s: float, wait_s: float) -> dict[str, WorkState] | None:
    """The states of the work under *lease*, by name. None if they are not known yet.

    The list and the dialog use the same key, so they show the same answer.
    """
    key = ("work", lease.id, lease.works)
    try:
        found = await asks.glance(key, lambda: works.ask(lease), fresh_s, HOLDERS_KEPT_S, wait_s)
    except Exception as error:  # noqa: BLE001 - whatever the error is, the rest of the page is shown
        log.warning("Whether the work under lease %s runs: %r", lease.id, error)
        return works.unanswered(lease, asked=True)
    if found is None and (asks.is_asked(key, WORKS_WAIT_S) or wait_s >= WORKS_WAIT_S):
        return works.unanswered(lease, asked=asks.is_asked(key, 0.0))
    return found


def now_ms(connection_id: str, manager: LockManager) -> int:
    """The present time of a lock store, in ms."""
    return _clocks[connection_id].now_ms(manager)


def _holders(connection_id: str) -> view.ShownLocks:
    manager = HiveLockHook(connection_id).manager()
    return view.ShownLocks(now_ms(connection_id, manager), manager.show())


def _past_holds(connection_id: str) -> PastHolds:
    manager = HiveLockHook(connection_id).manager()
    try:
        return PastHolds(manager.history(most=MOST_READ) if manager.capabilities.audits else ())
    except HiveLockError as error:
        log.warning("No expected waits: %s", error)  # the rest of the page is shown
        return PastHolds(())


def _expected_ends(
    past: PastHolds, held: Sequence[Lease], waiting: Sequence[Waiter], now_ms: int
) -> dict[str, list[int]]:
    """From when to when each wait will probably end. In whole seconds, so that one answer is like the next."""
    ranges = expected_waits(past, held, waiting, datetime.fromtimestamp(now_ms / 1000, UTC))
    return {owner: [round(now_ms / 1000 + each_s) * 1000 for each_s in each] for owner, each in ranges.items()}


async def connections() -> list[str]:
    """The ids of the connections to lock stores.

    :raises HTTPException: Airflow itself does not answer. No lock store is to blame.
    """
    try:
        return await reads.ask(("", "connections"), access.connection_ids, CONNECTIONS_FRESH_S)
    except StoreUnavailable as error:
        raise HTTPException(
            503,
            f"Airflow did not list its connections within {PATIENCE_S:g} s. Try again. If it happens often, check Airflow's "
            "database and the load of the API server",
        ) from error


async def checked(connection_id: str) -> None:
    """Refuse a connection that is not to a lock store."""
    if connection_id not in await connections():
        raise HTTPException(404, f"There is no connection {connection_id!r} of type {HiveLockHook.conn_type}")


async def shared_view(
    connection_id: str, what: Hashable, read: Callable[[HiveLockHook, int], View], max_age_s: float
) -> Shown:
    """The view of a lock store that *read* makes for all users. It is no older than *max_age_s*."""
    await checked(connection_id)

    def make() -> Shown:
        hook = HiveLockHook(connection_id)
        at_ms = now_ms(connection_id, hook.manager())
        with _uncollected():
            found = read(hook, at_ms)
        last = _shown.get((connection_id, what))
        shown = Shown(found, at_ms, last.texts if last is not None and last.view == found else {})
        if len(_shown) > MOST_SHOWN:
            _shown.clear()
        _shown[connection_id, what] = shown
        return shown

    return await reads.ask((connection_id, what), make, max_age_s)


class Shown:
    """A view, with a cached text for each set of hidden DAGs."""

    def __init__(self, shown: View, now_ms: int, texts: dict[frozenset[str], tuple[bytes, str]]) -> None:
        self.view = shown
        self.texts = texts
        self._read_at = time.monotonic(), now_ms

    def now_ms(self) -> int:
        """The present time of the store, in ms."""
        at, now_ms = self._read_at
        return now_ms + int((time.monotonic() - at) * 1000)

    def text(self, hidden: frozenset[str]) -> tuple[bytes, str]:
        """The view without the *hidden* DAGs as compressed JSON, and its ETag."""
        if hidden not in self.texts:
            body = json.dumps(self.view.without(hidden), separators=(",", ":"), ensure_ascii=False).encode()
            tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
            self.texts[hidden] = gzip.compress(body, COMPRESSION, mtime=0), tag
        return self.texts[hidden]


async def answer(
    connection_id: str, user: Any, asked: Mapping[str, str], shown: Callable[[], Shown] | Shown
) -> Response:
    """The response with the part of a view that *user* may see. It is empty if the browser already has that.

    :param shown: the view, or a function that creates it in a thread.
    """

    def build() -> Response:
        found = shown if isinstance(shown, Shown) else shown()
        body, tag = found.text(access.hidden(found.view.dag_ids, user))
        headers = {
            "ETag": tag,
            "Vary": "Accept-Encoding",
            "X-Store-Now": str(found.now_ms()),
            "X-May-Release": str(access.shows_release(connection_id, user)).lower(),
        }
        if tag in asked.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in asked.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            body = gzip.decompress(body)
        return Response(body, headers=headers, media_type="application/json")

    return await run_in_threadpool(build)


def permitted(found: Lease | None, installation: str, user: Any) -> Lease:
    """Return the lease if *user* may see its DAG.

    :raises HTTPException: the lease was released, or *user* may not see its DAG.
    """
    if found is None:
        raise HTTPException(404, "This lease has been released")
    if (dag := hiding.dag_of(found, installation)) and access.hidden([dag], user):
        raise HTTPException(403, "Forbidden")
    return found
