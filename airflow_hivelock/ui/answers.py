"""The answers of the routes, as OpenAPI describes them.

Times are in milliseconds since 1970, by the lock store's clock. ``o`` is an index in the answer's list of owners. The
views create the answers, and these models do not check them at run time.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["S", "X"]
Lock = list[Any]
Job = list[Any]
_LOCKS = "Each lock: its object, its mode, and 1 if it is taken only for objects below its own"
_OWNER = "An index in `owners`"


class AnswerPart(BaseModel):
    """A part of an answer. It has no other fields."""

    model_config = ConfigDict(extra="forbid")


class TaskAnswer(AnswerPart):
    """An owner: a task instance."""

    text: str
    dag: str
    run: str
    task: str
    map: int | None = Field(None, description="Only of a mapped task")
    installation: str | None = Field(None, description="Only of another Airflow")


class PersonAnswer(AnswerPart):
    """An owner: a user, by a statement or a reservation."""

    text: str
    person: str
    until: int | None = Field(None, description="Only of a reservation: when it ends")


class ProgramAnswer(AnswerPart):
    """An owner: another program."""

    text: str


class HiddenAnswer(AnswerPart):
    """An owner: a task of a DAG that you may not see."""

    hidden: Literal[True]


Owner = TaskAnswer | PersonAnswer | ProgramAnswer | HiddenAnswer


class ConnectionsAnswer(AnswerPart):
    """The lock stores, and the user."""

    connections: list[str]
    user: str
    airflow: str = Field(description="The path of Airflow's own pages")


class LeaseAnswer(AnswerPart):
    """A held lease. `id`, `why`, `jobs` and `query` are missing if its owner is hidden."""

    id: str | None = None
    o: int = Field(description=_OWNER)
    token: int = Field(description="The fencing token")
    attempt: int
    since: int
    lease_s: float
    jobs: list[Job] | None = Field(
        None,
        description="The work under it: name and text, then code, text and next step if known. Hidden work has only a state",
    )
    locks: list[Lock] = Field(description=_LOCKS)
    expires: int | None = None
    query: str | None = None
    lost: list[str] | None = Field(None, description="Objects whose locks it has lost")
    doing: Literal["works", "idle", "ends", "needs", "hand", "untold"]
    state: str = Field(description="`doing` in words")
    why: str | None = None
    at: int | None = Field(None, description="The start of that state")


class HiveLockAnswer(AnswerPart):
    """A lock of Hive, or of another client of its metastore. `id` and `query` are empty if its owner is hidden."""

    object: str
    mode: Mode
    owner: str
    since: int
    explicit: bool | None = Field(description="Whether LOCK TABLE took it")
    query: str
    id: str | None = Field(None, description="The id for a force release; missing if there is none")
    heartbeat: int | None = None


class ArrowAnswer(AnswerPart):
    """A blocker of a waiter."""

    o: int = Field(description=_OWNER)
    object: str
    mode: Mode
    waiting: bool = Field(description="Whether it is itself a waiter")
    counted: Literal[True] | None = Field(None, description="It blocks by its permit")


class WaiterAnswer(AnswerPart):
    """A waiting request."""

    o: int = Field(description=_OWNER)
    position: int = Field(description="1 for the first; 0 if it is in no queue")
    priority: int
    waits_for: Literal["lock", "lease", "slot", "free"] = Field(alias="for")
    since: int
    until: int | None = Field(None, description="When its invitation ends")
    expected: list[int] | None = Field(
        None, description="From when to when its wait will probably end; missing: too little history"
    )
    locks: list[Lock] = Field(description=_LOCKS)
    blockers: list[ArrowAnswer] = Field(description="The nearest ones")
    direct: int = Field(description="The number of direct blockers")
    ahead: int = Field(description="The number of waiters ahead of it")
    holders: list[ArrowAnswer] = Field(description="The holders that it waits for, directly or behind other waiters")
    group: str | None = Field(None, description="Only if it waits for a lease of its group")
    out: int | None = Field(None, description="The number of held leases of its group")


class ListingAnswer(AnswerPart):
    """The fields of all lists."""

    installation: str
    owners: list[Owner]
    left_out: int = Field(description="The number of rows that are not in this answer")


class CurrentAnswer(ListingAnswer):
    """The holders and the waiters."""

    leases: list[LeaseAnswer]
    hive: list[HiveLockAnswer] | None = Field(description="null if not known yet; ask again")
    waiters: list[WaiterAnswer]
    expires: bool = Field(description="Whether time frees a lease in this lock store")


class TenureAnswer(AnswerPart):
    """A lease of the last days. `id` is missing if its owner is hidden."""

    id: str | None = None
    o: int = Field(description=_OWNER)
    locks: list[Lock] = Field(description=_LOCKS)
    asked: int
    granted: int
    ended: int | None = Field(description="null while it is held")


class HistoryAnswer(ListingAnswer):
    """The leases of the last hours, the newest first."""

    tenures: list[TenureAnswer]


class EntryAnswer(AnswerPart):
    """A force release. `id` and `reason` are missing if its owner is hidden, and `reason` also if it names a hidden DAG."""

    at: int
    id: str | None = None
    o: int = Field(description="The owner of the lease: an index in `owners`")
    user: str = Field(description="The user who released it")
    reason: str | None = None
    locks: list[Lock] = Field(description=_LOCKS)


class AuditAnswer(ListingAnswer):
    """The force releases, the newest first."""

    entries: list[EntryAnswer]


class MemberAnswer(AnswerPart):
    """A request of a group."""

    o: int = Field(description=_OWNER)
    weight: int = Field(description="How many permits it has, or waits for")


class GroupAnswer(AnswerPart):
    """A group of leases."""

    name: str = Field(description="Empty: it is a DAG that you may not see")
    leases: int | None = Field(description="Its limit in the lock store; null: each request has its own")
    weight: int | None = Field(description="The default weight of its requests")
    comment: str
    taken: int = Field(description="How many permits are taken")
    holding: list[MemberAnswer]
    waiting: list[MemberAnswer] = Field(description="In their order")


class GroupsAnswer(ListingAnswer):
    """The groups that have a limit in the lock store, or requests."""

    groups: list[GroupAnswer]


Code = Literal["runs", "ended", "away", "untold", "silent"]


class WorkAnswer(AnswerPart):
    """Recorded work under a lease."""

    name: str
    what: str
    host: str = Field(description="The only host that can check it; empty for any host")
    code: Code | None = Field(None, description="Whether it runs; missing if not known yet")
    how: str | None = Field(None, description="`code` in words")
    next: str | None = Field(None, description="The next step for you")


class KeeperAnswer(AnswerPart):
    """The keeper's verdict on a lease."""

    why: str
    next: str
    at: int | None = Field(None, description="The time of its last report on the lease")
    report: str | None = None


class LeaseDetailsAnswer(AnswerPart):
    """A lease, with its recorded work."""

    id: str
    owner: Owner
    token: int
    locks: int = Field(description="The number of freed locks")
    works: list[WorkAnswer]
    keeper: KeeperAnswer


class HostWorkAnswer(AnswerPart):
    """Work that is recorded on a host."""

    owner: Owner
    name: str


class OnHostAnswer(AnswerPart):
    """The work that has ended if a host is gone."""

    works: list[HostWorkAnswer]


class ReleasedAnswer(AnswerPart):
    """Whether this call freed the lease."""

    freed: bool


class HiveReleasedAnswer(AnswerPart):
    """How many locks this call freed."""

    freed: int


class GroupSetAnswer(AnswerPart):
    """The limit of a group is stored."""

    leases: int


class GroupDroppedAnswer(AnswerPart):
    """Whether there was a limit to drop."""

    dropped: bool


class WithdrawnAnswer(AnswerPart):
    """Whether this call withdrew the request."""

    withdrawn: bool


class PriorityChangedAnswer(AnswerPart):
    """Whether this call changed the priority of the request."""

    changed: bool


class ReservedAnswer(AnswerPart):
    """The lease of a reservation. Its force release ends it early."""

    lease: str


class HostGoneAnswer(AnswerPart):
    """The number of records of work on the host that now count as ended."""

    ended: int


class ProblemAnswer(BaseModel):
    """The reason for an error."""

    detail: str


_PROBLEMS = {
    400: "The lock store or the request does not allow it",
    401: "You are not signed in",
    403: "You may not do this",
    404: "There is no such connection, or no such lease any more",
    409: "The object of a reservation is in use",
    422: "The request is malformed",
    503: "The lock store does not answer. For a change, the text tells whether its outcome is unknown",
}


def gives(answer: type[AnswerPart]) -> dict[str, Any]:
    """The arguments of the route decorator for this answer."""
    problems = {code: {"model": ProblemAnswer, "description": text} for code, text in _PROBLEMS.items()}
    return {"response_model": None, "responses": {200: {"model": answer}, **problems}}
