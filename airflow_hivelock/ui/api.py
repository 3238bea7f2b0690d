"""The routes that read data, below ``/api/v1``, for the page and for programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import past
from airflow_hivelock.locks.groups import group_of
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.ui import access, answers, changes, hiding, holders, looks, view, works

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.locks.model import ForcedRelease, GroupUse, Lease, Member, Tenure
    from airflow_hivelock.locks.past import Past
    from airflow_hivelock.ui.hiding import View
    from airflow_hivelock.ui.works import WorkState

MOST_GROUPS = 1_000

router = APIRouter(prefix="/api/v1", tags=["looks"])


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> dict[str, Any]:
    """The description of these routes."""
    return {**request.app.openapi(), "servers": [{"url": request.scope.get("root_path", "") or "/"}]}


@router.get("/connections", **answers.gives(answers.ConnectionsAnswer))
async def connections(user: Any = access.USER) -> dict[str, Any]:
    """The lock stores, and the user."""
    return {
        "connections": await looks.connections(),
        "user": access.user_name(user),
        "airflow": access.base_path(),
    }


@router.get("/{connection_id}/current", **answers.gives(answers.CurrentAnswer))
async def current(connection_id: str, request: Request, user: Any = access.USER) -> Response:
    """The holders and the waiters."""
    await looks.checked(connection_id)
    return await looks.answer(connection_id, user, request.headers, await looks.current(connection_id))


@dataclass(frozen=True)
class Wanted:
    """The filter of past leases, or of the audit trail."""

    object: str
    owner: str
    limit: int | None

    @property
    def all(self) -> bool:
        """Whether the filter selects all entries."""
        return not (self.object or self.owner or self.limit)

    def of(self, entries: Sequence[Past], installation: str, user: Any) -> list[Past]:
        """The selected *entries*. The filter by owner does not select owners that are hidden from *user*.

        :raises InvalidRequest: the object is malformed.
        """
        target = LockObject.parse(self.object) if self.object else None
        if self.owner:
            named = {entry.owner: group_of(entry.owner) for entry in entries}
            groups = access.dags_among(named.values())
            dags = {
                owner: group if group in groups else hiding.dag_of_owner(owner, installation)
                for owner, group in named.items()
            }
            hidden = access.hidden(filter(None, dags.values()), user)
            entries = [entry for entry in entries if dags[entry.owner] not in hidden]
        return past.newest(entries, target, owner=self.owner, limit=self.limit)


def wanted(
    object: Annotated[str, Query(max_length=3_000, description="Only for this object and objects below it")] = "",
    owner: Annotated[str, Query(max_length=300, description="Only for owners that contain this text")] = "",
    limit: Annotated[int | None, Query(ge=1, le=view.MOST_TENURES, description="Only the newest")] = None,
) -> Wanted:
    """The filter of a request. The FastAPI of Airflow 3.1 cannot resolve the annotations of a class."""
    return Wanted(object, owner, limit)


@router.get("/{connection_id}/history", **answers.gives(answers.HistoryAnswer))
async def history(
    connection_id: str,
    request: Request,
    wanted: Annotated[Wanted, Depends(wanted)],
    hours: int = Query(24, ge=1, le=168, description="Only leases that were held or requested in the last hours"),
    user: Any = access.USER,
) -> Response:
    """The leases of the last hours, the newest first."""
    await looks.checked(connection_id)
    hook = HiveLockHook(connection_id)
    # One read for every number of hours, because it is slow.
    tenures = await looks.reads.ask((connection_id, "history"), lambda: hook.manager().history(), looks.FRESH_S)

    def read(_: LockManager, now_ms: int) -> Sequence[Tenure]:
        since = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(hours=hours)
        return [tenure for tenure in tenures if tenure.ended is None or tenure.ended >= since]

    return await _past(
        connection_id, request, user, wanted, ("history", hours), looks.HISTORY_FRESH_S, read, view.history
    )


@router.get("/{connection_id}/audit", **answers.gives(answers.AuditAnswer))
async def audit(
    connection_id: str, request: Request, wanted: Annotated[Wanted, Depends(wanted)], user: Any = access.USER
) -> Response:
    """The force releases, the newest first."""
    return await _past(
        connection_id, request, user, wanted, "audit", looks.FRESH_S, lambda manager, _: manager.audit(), _audited
    )


def _audited(entries: Sequence[ForcedRelease], installation: str) -> View:
    shown = view.audit(entries, installation)
    return replace(shown, dag_ids=shown.dag_ids | access.dags_among(group_of(entry.owner) for entry in entries))


async def _past(
    connection_id: str,
    request: Request,
    user: Any,
    wanted: Wanted,
    what: Any,
    fresh_s: float,
    read: Callable[[LockManager, int], Sequence[Past]],
    shown: Callable[[Sequence[Past], str], View],
) -> Response:
    """The past entries that *user* may see. All users share one read of the store."""
    if wanted.all:

        def view_of_all(hook: HiveLockHook, now_ms: int) -> View:
            return shown(past.newest(read(hook.manager(), now_ms)), hook.installation)

        every = await looks.shared_view(connection_id, what, view_of_all, fresh_s)
        return await looks.answer(connection_id, user, request.headers, every)
    await looks.checked(connection_id)
    hook = HiveLockHook(connection_id)

    def entries() -> tuple[Sequence[Past], int]:
        now_ms = looks.now_ms(connection_id, hook.manager())
        return read(hook.manager(), now_ms), now_ms

    found, now_ms = await looks.reads.ask((connection_id, what, "entries"), entries, fresh_s)

    def select() -> looks.Shown:
        return looks.Shown(shown(wanted.of(found, hook.installation, user), hook.installation), now_ms, {})

    return await looks.answer(connection_id, user, request.headers, select)


@router.get("/{connection_id}/groups", **answers.gives(answers.GroupsAnswer))
async def groups(connection_id: str, request: Request, user: Any = access.USER) -> Response:
    """The groups of leases: the limit of each, its holders and its waiters."""

    def read(hook: HiveLockHook, _: int) -> View:
        return _groups(hook.manager().groups(), hook.installation)

    shown = await looks.shared_view(connection_id, "groups", read, looks.FRESH_S)
    return await looks.answer(connection_id, user, request.headers, shown)


def _groups(found: Sequence[GroupUse], installation: str) -> View:
    owners = view.Owners(installation)

    def members(of: Sequence[Member]) -> list[dict[str, int]]:
        return [{"o": owners.index(member.owner), "weight": member.weight} for member in of[: view.MOST_WAITERS]]

    rows = [
        {
            "name": use.name,
            "leases": use.stored.leases if use.stored else None,
            "weight": use.stored.weight if use.stored else None,
            "comment": use.stored.comment if use.stored else "",
            "taken": use.taken,
            "holding": members(use.holding),
            "waiting": members(use.waiting),
        }
        for use in found[:MOST_GROUPS]
    ]
    # Users who may not see a DAG do not see its id, which can be the name of a group.
    dag_ids = access.dags_among(use.name for use in found)
    return view.named(owners, {"groups": rows, "left_out": len(found) - len(rows)}, dag_ids)


@router.get("/{connection_id}/leases/{lease_id}", **answers.gives(answers.LeaseDetailsAnswer))
async def lease(connection_id: str, lease_id: str, user: Any = access.USER) -> dict[str, Any]:
    """A lease with its work and the keeper's last report. States of work are included if known within some seconds."""
    await looks.checked(connection_id)
    hook = HiveLockHook(connection_id)
    reads = looks.reads
    found = await reads.ask((connection_id, "lease", lease_id), lambda: hook.manager().find(lease_id), looks.FRESH_S)
    installation = await run_in_threadpool(lambda: hook.installation)  # it asks a database, or a server for secrets
    shown = await run_in_threadpool(looks.permitted, found, installation, user)
    known = await looks.work_under(shown, looks.FRESH_S, looks.WORKS_WAIT_S) or {}
    report_s = looks.HOLDERS_FRESH_S
    keeper = await reads.ask((connection_id, "keeper"), lambda: access.keeper_suspects(connection_id), report_s)
    return await run_in_threadpool(_details, shown, installation, known, keeper, user)


def _details(
    lease: Lease, installation: str, known: Mapping[str, WorkState], keeper: tuple[int, Mapping[str, str]], user: Any
) -> dict[str, Any]:
    """A lease with its recorded work. Work of DAGs that *user* may not see is nameless.

    :param known: the known states of the work, by name.
    :param keeper: the time of the keeper's last report on suspect leases, with the reasons by lease id.
    """
    hosts = {work.name: works.host_of(work.application) for work in lease.works}
    every = holders.job_rows([[work.name, works.what(work.application)] for work in lease.works], known)
    jobs = hiding.jobs_without(every, access.hidden(hiding.dags_of(lease, installation), user))
    shown = [
        {
            "name": name,
            "what": text,
            "host": hosts.get(name, ""),
            **dict(zip(("code", "how", "next"), state, strict=False)),
        }
        for name, text, *state in jobs
    ]
    why, step = works.judge(jobs, holders.never_freed(lease, installation, access.task_facts))
    at_ms, whys = keeper
    # A report can name any work of the lease.
    report = {"at": at_ms, "report": whys[lease.id]} if lease.id in whys and jobs == every else {}
    return {
        "id": lease.id,
        "owner": hiding.owner_row(lease.owner, installation),
        "token": lease.token,
        "locks": len(lease.locks),
        "works": shown,
        "keeper": {"why": why, "next": step, **report},
    }


@router.get("/{connection_id}/hosts", **answers.gives(answers.OnHostAnswer))
async def on_host(connection_id: str, host: str, user: Any = access.USER) -> dict[str, Any]:
    """The work that would count as ended if that host is gone. Only work of DAGs that the user may see is included."""
    await looks.checked(connection_id)
    hook = HiveLockHook(connection_id)
    fresh_s = looks.HOLDERS_FRESH_S
    leases = await looks.reads.ask((connection_id, "leases"), lambda: hook.manager().leases(), fresh_s)
    installation = await run_in_threadpool(lambda: hook.installation)
    found = await run_in_threadpool(changes.on_host, host, leases, installation, user)
    rows = [{"owner": hiding.owner_row(each.lease.owner, installation), "name": each.work.name} for each in found]
    return {"works": rows}


router.include_router(changes.router)
