"""The page's web application, which Airflow's API server mounts. All of it is for those who may see plugins."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import secrets
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field

from airflow_hivelock import metrics
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks.errors import (
    AccessDenied,
    HiveLockError,
    InvalidRequest,
    StoreCorrupted,
    Unsupported,
)
from airflow_hivelock.ui import access, holders, view, works
from airflow_hivelock.ui.reads import SharedReads, Uncollected
from airflow_hivelock.work import hosts
from airflow_hivelock.work.hosts import declare_gone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.ui.view import View
    from airflow_hivelock.ui.works import WorkState
    from airflow_hivelock.work.hosts import HostWork

log = structlog.get_logger(__name__)


FILES = {file.name: file for file in (Path(__file__).parent / "static").iterdir()}

PATIENCE_S = 8.0
"""How long a request waits for the lock store."""

FRESH_S = 1.5
HOLDERS_FRESH_S, HOLDERS_KEPT_S = 5.0, 60.0
"""A look through all of Hive's namespace is costly: it goes on in the background, and its last answer is shown meanwhile."""

WORKS_FRESH_S, WORKS_WAIT_S = 15.0, 4.0
MOST_ASKED = 50
"""Of how many leases the list asks whether their work runs."""

LITTLE_S = 0.05
"""How long a request waits for what goes on in the background: the page soon asks again for what is missing."""

HISTORY_FRESH_S = 15.0
CONNECTIONS_FRESH_S = 10.0
MOST_SHOWN = 50
COMPRESSION = 5

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

SILENT = {
    AccessDenied: "The lock store does not let Airflow's API server in. Put right the credentials of the connection, or "
    "the store's permissions.",
    StoreCorrupted: "The lock store holds what this version cannot read. Upgrade airflow-hivelock on the API server, or "
    "look at what was written there.",
    HiveLockError: "The lock store does not answer. What is locked stays locked and jobs that run go on, but nothing is "
    "granted or released; a task that waits fails after ten minutes. See that the store is up, and that the API server "
    "reaches it.",
}
ASK_WHY = 'On the API server\'s host, airflow hivelock --conn-id {} -e "SHOW LOCKS" says why, as its log does.'

app = FastAPI(title="Hive locks", dependencies=[access.MAY_LOOK], docs_url=None, redoc_url=None, openapi_url=None)
_reads = SharedReads("store", PATIENCE_S)
_asks = SharedReads("clusters", WORKS_WAIT_S)
"""Questions to what runs under leases. A cluster may be silent for long: in a pool of their own they keep no read waiting."""

_uncollected = Uncollected()
_shown: dict[tuple[str, Hashable], Shown] = {}
_needy: dict[str, tuple[Lease, ...]] = {}
"""By connection that has been looked at, the leases that need somebody: whether their work still runs is asked."""

_clocks: defaultdict[str, view.StoreClock] = defaultdict(view.StoreClock)


class Reason(BaseModel):
    """What a force release is asked for with."""

    reason: str = Field(min_length=1, max_length=1_000, pattern=r"\S")


class HostGone(Reason):
    """What a host is declared gone with."""

    host: str = Field(min_length=1, max_length=300)


def _by_this_page(x_hivelock: str = Header(""), sec_fetch_site: str = Header("same-origin")) -> None:
    """A dependency: the page itself asks, or 403.

    Airflow's session cookie is SameSite=Lax, so that no other site's POST carries it. A page of the same site is kept out
    by the header, which only a script of this origin may send without being asked for permission first.
    """
    if x_hivelock != "release" or sec_fetch_site != "same-origin":
        raise HTTPException(403, "Not asked for by this page")


@app.middleware("http")
async def _harden(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    response.headers.update(HEADERS)
    return response


@app.exception_handler(HiveLockError)
async def _refused(request: Request, error: HiveLockError) -> JSONResponse:
    if isinstance(error, InvalidRequest | Unsupported):
        return JSONResponse({"detail": str(error)}, 400)
    log.warning("The page cannot look at the lock store: %s", error)  # not told: it names servers
    said = next(said for kind, said in SILENT.items() if isinstance(error, kind))
    connection_id = request.path_params.get("connection_id", "")
    return JSONResponse({"detail": f"{said} {ASK_WHY.format(connection_id)}"}, 503)


@app.exception_handler(RequestValidationError)
async def _malformed(_: Request, error: RequestValidationError) -> JSONResponse:
    # Without what was given: half a character cannot be sent back.
    return JSONResponse({"detail": "; ".join(str(each["msg"]) for each in error.errors())}, 422)


@app.get("/")
def page() -> FileResponse:
    return FileResponse(FILES["index.html"])


@app.get("/static/{name}")
def static(name: str) -> FileResponse:
    if name not in FILES:
        raise HTTPException(404, "Not found")
    return FileResponse(FILES[name])


@app.get("/api/connections")
async def connections(user: Any = access.USER) -> dict[str, Any]:
    """Which lock stores there are, and who looks at them."""
    return {"connections": await _connections(), "user": access.user_name(user), "airflow": access.base_path()}


@app.get("/api/{connection_id}/current")
async def current(connection_id: str, request: Request, user: Any = access.USER) -> Response:
    """Who holds and who waits."""
    await _checked(connection_id)
    return await _answer(connection_id, await _current(connection_id), user, request.headers)


async def _current(connection_id: str) -> Shown:
    needy = _needy.get(connection_id)
    looked, answers = None, {}
    if needy is not None:  # the first look has to be quick
        looked = await _reads.glance(
            (connection_id, "holders"), lambda: _holders(connection_id), HOLDERS_FRESH_S, HOLDERS_KEPT_S, LITTLE_S
        )
        asked = needy[:MOST_ASKED]
        found = await asyncio.gather(*(_work_under(lease, WORKS_FRESH_S, LITTLE_S) for lease in asked))
        answers = {lease.id: answer for lease, answer in zip(asked, found, strict=True) if answer}

    def read(hook: HiveLockHook, now_ms: int) -> View:
        manager = hook.manager()
        held, waiting = manager.requests()
        expires, sensors = manager.capabilities.expires, access.sensors(connection_id)
        shown = view.current(held, waiting, looked, hook.installation, expires=expires, sensors=sensors)
        holders.judge(shown.data, now_ms, access.told, answers)
        needs = {row["id"] for row in shown.data["leases"] if row["doing"] == "needs"}
        _needy[connection_id] = tuple(lease for lease in held if lease.id in needs)
        return shown

    return await _look(connection_id, "current", read, FRESH_S)


async def _work_under(lease: Lease, fresh_s: float, wait_s: float) -> dict[str, WorkState] | None:
    """Whether the work under *lease* runs; None: that is not known yet.

    The list and the dialog ask under the same key, so that they show the same answer.
    """
    key = ("work", lease.id, lease.works)
    try:
        found = await _asks.glance(key, lambda: works.ask(lease), fresh_s, HOLDERS_KEPT_S, wait_s)
    except Exception as error:  # noqa: BLE001 - whatever it was, the rest of the page is shown
        log.warning("Whether the work under lease %s runs: %r", lease.id, error)
        return works.unanswered(lease, asked=True)
    if found is None and (_asks.is_asked(key, WORKS_WAIT_S) or wait_s >= WORKS_WAIT_S):
        return works.unanswered(lease, asked=_asks.is_asked(key, 0.0))
    return found


def _holders(connection_id: str) -> view.Looked:
    manager = HiveLockHook(connection_id).manager()
    return view.Looked(_clocks[connection_id].now_ms(manager), manager.show())


@app.get("/api/{connection_id}/history")
async def history(
    connection_id: str, request: Request, hours: int = Query(24, ge=1, le=168), user: Any = access.USER
) -> Response:
    """Who held what in the last hours."""

    def read(hook: HiveLockHook, now_ms: int) -> View:
        since = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(hours=hours)
        return view.history(hook.manager(), hook.installation, since)

    shown = await _look(connection_id, ("history", hours), read, HISTORY_FRESH_S)
    return await _answer(connection_id, shown, user, request.headers)


@app.get("/api/{connection_id}/audit")
async def audit(connection_id: str, request: Request, user: Any = access.USER) -> Response:
    """Who has freed what by force."""
    shown = await _look(connection_id, "audit", lambda hook, _: view.audit(hook.manager(), hook.installation), FRESH_S)
    return await _answer(connection_id, shown, user, request.headers)


@app.get("/api/{connection_id}/leases/{lease_id}")
async def lease(connection_id: str, lease_id: str, user: Any = access.USER) -> dict[str, Any]:
    """What runs under a lease, if that is known within :data:`WORKS_WAIT_S`, and the keeper's last report on it."""
    await _checked(connection_id)
    hook = HiveLockHook(connection_id)
    found = await _reads.ask((connection_id, "lease", lease_id), lambda: hook.manager().find(lease_id), FRESH_S)
    shown = await run_in_threadpool(_permitted, found, hook.installation, user)
    answers = await _work_under(shown, FRESH_S, WORKS_WAIT_S) or {}
    keeper = await _reads.ask((connection_id, "keeper"), lambda: access.keeper_suspects(connection_id), HOLDERS_FRESH_S)
    return view.describe(shown, hook.installation, answers, keeper)


@app.post("/api/{connection_id}/leases/{lease_id}/release", dependencies=[Depends(_by_this_page)])
async def release(connection_id: str, lease_id: str, reason: Reason, user: Any = access.MAY_RELEASE) -> dict[str, bool]:
    """Free a lease by force."""
    await _checked(connection_id)
    who = access.user_name(user)

    def free() -> bool:
        hook = HiveLockHook(connection_id)
        _permitted(hook.manager().find(lease_id), hook.installation, user)
        return hook.manager().force_release(lease_id, reason=reason.reason.strip(), user=who)

    freed = await _reads.ask(secrets.token_hex(8), free)
    _reads.forget(
        *((connection_id, what) for what in ("current", "audit", "leases")), (connection_id, "lease", lease_id)
    )
    if freed:
        metrics.force_released()
        log.info("Lease %s freed by force by %s: %s", lease_id, who, reason.reason)
    return {"freed": freed}


@app.get("/api/{connection_id}/hosts")
async def on_host(connection_id: str, host: str, user: Any = access.USER) -> dict[str, Any]:
    """What has ended if that host is gone: of the DAGs that one may see."""
    await _checked(connection_id)
    hook = HiveLockHook(connection_id)
    leases = await _reads.ask((connection_id, "leases"), lambda: hook.manager().leases(), HOLDERS_FRESH_S)
    found = await run_in_threadpool(_on_host, host, leases, hook.installation, user)
    rows = [{"owner": view.owner_row(each.lease.owner, hook.installation), "name": each.work.name} for each in found]
    return {"works": rows}


@app.post("/api/{connection_id}/hosts/gone", dependencies=[Depends(_by_this_page)])
async def host_gone(connection_id: str, gone: HostGone, user: Any = access.MAY_RELEASE) -> dict[str, int]:
    """Say that a host is gone: what is recorded there by now has ended, of the DAGs that one may see."""
    await _checked(connection_id)
    who = access.user_name(user)

    def declare() -> list[str]:
        hook = HiveLockHook(connection_id)
        manager = hook.manager()
        found = _on_host(gone.host, manager.leases(), hook.installation, user)
        return [each.lease.id for each in declare_gone(manager, found, reason=gone.reason.strip(), user=who)]

    ended = await _reads.ask(secrets.token_hex(8), declare)
    changed = [(connection_id, "lease", lease_id) for lease_id in ended]
    _reads.forget(*((connection_id, what) for what in ("current", "audit", "leases")), *changed)
    log.info("Host %s declared gone by %s, with %d works: %s", gone.host, who, len(ended), gone.reason)
    return {"ended": len(ended)}


def _on_host(host: str, leases: Sequence[Lease], installation: str, user: Any) -> list[HostWork]:
    """What has ended if *host* is gone, of the DAGs that *user* may see: an error lists no other hosts either.

    :raises InvalidRequest: nothing has: see :func:`airflow_hivelock.work.hosts.on_host`.
    """
    dags = {lease.id: view.dag_of(lease, installation) for lease in leases}
    hidden = access.hidden(filter(None, dags.values()), user)
    return hosts.on_host(host, [lease for lease in leases if dags[lease.id] not in hidden])


async def _connections() -> list[str]:
    return await _reads.ask(("connections",), access.connection_ids, CONNECTIONS_FRESH_S)


async def _checked(connection_id: str) -> None:
    """No other connection of Airflow's is looked at."""
    if connection_id not in await _connections():
        raise HTTPException(404, f"There is no connection {connection_id!r} of type {HiveLockHook.conn_type}")


async def _look(
    connection_id: str, what: Hashable, read: Callable[[HiveLockHook, int], View], max_age_s: float
) -> Shown:
    await _checked(connection_id)

    def look() -> Shown:
        hook = HiveLockHook(connection_id)
        now_ms = _clocks[connection_id].now_ms(hook.manager())
        with _uncollected():
            found = read(hook, now_ms)
        last = _shown.get((connection_id, what))
        shown = Shown(found, now_ms, last.texts if last is not None and last.view == found else {})
        if len(_shown) > MOST_SHOWN:
            _shown.clear()
        _shown[connection_id, what] = shown
        return shown

    return await _reads.ask((connection_id, what), look, max_age_s)


class Shown:
    """A view, and the text of it for each set of DAGs that somebody may not see."""

    def __init__(self, shown: View, now_ms: int, texts: dict[frozenset[str], tuple[bytes, str]]) -> None:
        self.view = shown
        self.texts = texts
        self._read_at = time.monotonic(), now_ms

    def now_ms(self) -> int:
        """The store's time by now."""
        at, now_ms = self._read_at
        return now_ms + int((time.monotonic() - at) * 1000)

    def text(self, hidden: frozenset[str]) -> tuple[bytes, str]:
        """JSON, compressed, and its tag."""
        if hidden not in self.texts:
            body = json.dumps(self.view.without(hidden), separators=(",", ":"), ensure_ascii=False).encode()
            tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
            self.texts[hidden] = gzip.compress(body, COMPRESSION, mtime=0), tag
        return self.texts[hidden]


async def _answer(connection_id: str, shown: Shown, user: Any, asked: Mapping[str, str]) -> Response:
    def build() -> Response:
        body, tag = shown.text(access.hidden(shown.view.dag_ids, user))
        headers = {
            "ETag": tag,
            "Vary": "Accept-Encoding",
            "X-Store-Now": str(shown.now_ms()),
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


def _permitted(found: Lease | None, installation: str, user: Any) -> Lease:
    """A lease, for a user who may see its DAG.

    :raises HTTPException: it has been released, or belongs to a DAG that *user* may not see.
    """
    if found is None:
        raise HTTPException(404, "This lease has been released")
    if (dag := view.dag_of(found, installation)) and access.hidden([dag], user):
        raise HTTPException(403, "Forbidden")
    return found
