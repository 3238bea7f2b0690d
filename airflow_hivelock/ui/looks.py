"""Looks at lock stores and at work, which all users share: each is read once, and kept as text for its readers."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import HTTPException, Response
from fastapi.concurrency import run_in_threadpool

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.ui import access, holders, view, works
from airflow_hivelock.ui.reads import SharedReads, Uncollected

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.ui.view import View
    from airflow_hivelock.ui.works import WorkState

log = structlog.get_logger(__name__)

PATIENCE_S = 8.0
"""How long a request waits for the lock store, in seconds."""

FRESH_S = 1.5
HOLDERS_FRESH_S, HOLDERS_KEPT_S = 5.0, 60.0
"""A look through all of Hive's namespace is costly: it runs in the background, and its last answer is shown meanwhile.
"""

WORKS_FRESH_S, WORKS_WAIT_S = 15.0, 4.0
MOST_ASKED = 50
"""For how many leases the list asks whether their work runs."""

LITTLE_S = 0.05
"""How long a request waits for background reads, in seconds: the page soon asks again for missing answers."""

HISTORY_FRESH_S = 15.0
CONNECTIONS_FRESH_S = 10.0
MOST_SHOWN = 50
COMPRESSION = 5

reads = SharedReads("store", PATIENCE_S)
asks = SharedReads("clusters", WORKS_WAIT_S)
"""Questions to the systems that run work. A silent cluster blocks only this pool, and no read."""

_uncollected = Uncollected()
_shown: dict[tuple[str, Hashable], Shown] = {}
_need_action: dict[str, tuple[Lease, ...]] = {}
"""By connection that was read: the leases that need a user's action. The page asks whether their work still runs."""

_clocks: defaultdict[str, view.StoreClock] = defaultdict(view.StoreClock)


async def current(connection_id: str) -> Shown:
    """The holders and the waiters."""
    need_action = _need_action.get(connection_id)
    shown_locks, answers = None, {}
    if need_action is not None:  # the first look has to be quick
        shown_locks = await reads.glance(
            (connection_id, "holders"), lambda: _holders(connection_id), HOLDERS_FRESH_S, HOLDERS_KEPT_S, LITTLE_S
        )
        asked = need_action[:MOST_ASKED]
        found = await asyncio.gather(*(work_under(lease, WORKS_FRESH_S, LITTLE_S) for lease in asked))
        answers = {lease.id: answer for lease, answer in zip(asked, found, strict=True) if answer}

    def read(hook: HiveLockHook, now_ms: int) -> View:
        manager = hook.manager()
        held, waiting = manager.requests()
        expires, sensors = manager.capabilities.expires, access.sensors(connection_id)
        shown = view.current(held, waiting, shown_locks, hook.installation, expires=expires, sensors=sensors)
        holders.judge(shown.data, now_ms, access.task_facts, answers)
        needs = {row["id"] for row in shown.data["leases"] if row["doing"] == "needs"}
        _need_action[connection_id] = tuple(lease for lease in held if lease.id in needs)
        return shown

    return await look(connection_id, "current", read, FRESH_S)


async def work_under(lease: Lease, fresh_s: float, wait_s: float) -> dict[str, WorkState] | None:
    """Whether the work under *lease* runs; None: unknown so far.

    The list and the dialog ask under the same key, so that they show the same answer.
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
    """The time of a lock store now."""
    return _clocks[connection_id].now_ms(manager)


def _holders(connection_id: str) -> view.ShownLocks:
    manager = HiveLockHook(connection_id).manager()
    return view.ShownLocks(now_ms(connection_id, manager), manager.show())


async def connections() -> list[str]:
    """The ids of the connections to lock stores."""
    return await reads.ask(("connections",), access.connection_ids, CONNECTIONS_FRESH_S)


async def checked(connection_id: str) -> None:
    """Refuse any other connection of Airflow's."""
    if connection_id not in await connections():
        raise HTTPException(404, f"There is no connection {connection_id!r} of type {HiveLockHook.conn_type}")


async def look(
    connection_id: str, what: Hashable, read: Callable[[HiveLockHook, int], View], max_age_s: float
) -> Shown:
    """A view of a lock store, no older than *max_age_s*."""
    await checked(connection_id)

    def look() -> Shown:
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

    return await reads.ask((connection_id, what), look, max_age_s)


class Shown:
    """A view, and its text for each set of DAGs that some user may not see."""

    def __init__(self, shown: View, now_ms: int, texts: dict[frozenset[str], tuple[bytes, str]]) -> None:
        self.view = shown
        self.texts = texts
        self._read_at = time.monotonic(), now_ms

    def now_ms(self) -> int:
        """The store's time now."""
        at, now_ms = self._read_at
        return now_ms + int((time.monotonic() - at) * 1000)

    def text(self, hidden: frozenset[str]) -> tuple[bytes, str]:
        """The view as compressed JSON, and its tag."""
        if hidden not in self.texts:
            body = json.dumps(self.view.without(hidden), separators=(",", ":"), ensure_ascii=False).encode()
            tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
            self.texts[hidden] = gzip.compress(body, COMPRESSION, mtime=0), tag
        return self.texts[hidden]


async def answer(
    connection_id: str, user: Any, asked: Mapping[str, str], shown: Callable[[], Shown] | Shown
) -> Response:
    """A view as *user* may see it, unless the browser has it already.

    :param shown: the view, or what makes it in a thread.
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
    """A lease, for a user who may see its DAG.

    :raises HTTPException: it has been released, or belongs to a DAG that *user* may not see.
    """
    if found is None:
        raise HTTPException(404, "This lease has been released")
    if (dag := view.dag_of(found, installation)) and access.hidden([dag], user):
        raise HTTPException(403, "Forbidden")
    return found
