"""Takes Hive's locks for each statement of a Spark Connect session. The client has no plan, so the text planner works
out the locks.

Two methods of the client send every request that runs. This module replaces both, and refuses a request that it cannot
plan. It also replaces the method that sends ``persist``.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spark import connect_errors
from airflow_hivelock.spark.connect_caches import caches_of
from airflow_hivelock.spark.connect_plans import ConnectPlans, Request
from airflow_hivelock.spark.holding import Planned, hold
from airflow_hivelock.spark.leases import DriverName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases

_RUNS = "_execute"
_FETCHES = "_execute_and_fetch_as_iterator"
"""The two methods of the client that send a plan to the server. All other methods use them."""

_ANALYSES = "_analyze"
"""The method of the client that asks about a plan. It also sends ``persist``."""

_originals: dict[str, Any] = {}
_enabled: dict[int, ConnectLocks] = {}
"""The locks of each session, by the id of its client."""

_asking: ContextVar[bool] = ContextVar("asking", default=False)
"""Whether this thread runs a statement of the lock planner. Such a statement takes no locks."""


def is_connect(spark: Any) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class ConnectLocks:
    """Holds the locks of each request of one session while the request runs. It has the methods of DriverSide."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.name = f"Spark Connect at {spark.client.host}"
        self.driver = DriverName(spark.conf.get("spark.app.id", None) or "?", self.name)
        self.caches = caches_of(spark.client.host)
        self._plans = ConnectPlans(self._ask, self.caches)
        self._leases: DriverLeases | None = None

    @property
    def tables(self) -> Catalog:
        return self._plans.tables

    def has_setting(self, name: str) -> bool:
        return name in {row["key"] for row in self._ask("SET")}

    def work(self, keeper: str) -> tuple[str, str]:
        """Refuse a keeper.

        :raises InvalidRequest: always. The server continues after its client has died, and no record shows what it runs.
        """
        raise InvalidRequest(
            f"keeper={keeper!r}: in Spark Connect no keeper can judge a lease, because the server continues after its client "
            "has died; remove keeper"
        )

    def plan_of(self, statement: Any) -> Plan:
        if isinstance(statement, str):
            request = Request((statement,))
        else:
            request = self._plans.read(statement._plan.to_proto(self._spark.client))
        try:
            found = self._plans.plan(request)
        finally:
            self._plans.ended(request, succeeded=False)
        assert found is not None
        return found[0]

    def start(self, leases: DriverLeases) -> None:
        self._leases = leases
        for name, replaced in ((_RUNS, _locked), (_FETCHES, _locked_rows), (_ANALYSES, _noted)):
            cls = _client()
            if name not in _originals:
                _originals[name] = vars(cls)[name]
                setattr(cls, name, replaced(_originals[name]))
        _enabled[id(self._spark.client)] = self

    def stop(self) -> None:
        _enabled.pop(id(self._spark.client), None)
        while _originals and not _enabled:
            setattr(_client(), *_originals.popitem())

    def cancel(self) -> None:
        """Interrupt everything that the session runs on the server."""
        self._spark.interruptAll()

    def ended(self, error: BaseException) -> bool:
        """Whether the request has ended on the server after *error*.

        After an interruption, cancel what the session runs. Return False, because the server does not report its end.
        """
        if isinstance(error, Exception):
            return not connect_errors.unanswered(error)
        self.cancel()
        return False

    @contextmanager
    def locked(self, plan: Any) -> Iterator[None]:
        """Hold the locks of a request for the time of the body.

        :param plan: the request's message.
        """
        assert self._leases is not None
        request = self._plans.read(plan)
        succeeded = False
        try:
            with hold(self._leases, partial(self._planned, request), request.name), self._caching(request):
                yield
            succeeded = True
        finally:
            self._plans.ended(request, succeeded=succeeded)

    def _caching(self, request: Request) -> AbstractContextManager[None]:
        if request.caches:
            return self.caches.creating()
        return self.caches.clearing() if request.clears else nullcontext()

    def shares_server(self, client: Any) -> bool:
        """Whether *client* uses the same server as this session."""
        return bool(client.host == self._spark.client.host)

    def _planned(self, request: Request) -> Planned | None:
        found = self._plans.plan(request)
        return found and Planned(found[0], lambda: self._again(request, found[1]))

    def _again(self, request: Request, tables: Sequence[LockObject]) -> Planned | None:
        self._refresh(tables)
        return self._planned(request)

    def _refresh(self, tables: Sequence[LockObject]) -> None:
        """Make the server list the files of *tables* again, because its own list may be older than the locks."""
        for each in tables:
            found = self._plans.tables.table(each)
            if found is not None and found.table_type != "VIRTUAL_VIEW":
                self._ask(f"REFRESH TABLE `{each.database}`.`{each.table}`")

    def _ask(self, text: str) -> list[Any]:
        asking = _asking.set(True)
        try:
            return list(self._spark.sql(text).collect())
        finally:
            _asking.reset(asking)


def _client() -> type:
    found: type = import_module("pyspark.sql.connect.client").SparkConnectClient
    return found


def _locks_of(client: Any) -> ConnectLocks | None:
    """The locks of the client's session. None if no session of its server has locks.

    :raises InvalidRequest: another session of this server takes locks, and this one does not.
    """
    if _asking.get():
        return None
    locks = _enabled.get(id(client))
    if locks is None and any(each.shares_server(client) for each in _enabled.values()):
        raise InvalidRequest(
            "this session of Spark Connect takes no locks, and another session of the same server does; call enable_hive_locks "
            "for this session too"
        )
    return locks


def _locked(original: Any) -> Any:
    @wraps(original)
    def run(client: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        locks = _locks_of(client)
        if locks is None:
            return original(client, req, *args, **kwargs)
        with locks.locked(req.plan):
            return original(client, req, *args, **kwargs)

    return run


def _locked_rows(original: Any) -> Any:
    """The request holds its locks until the last row, or until the iterator is closed."""

    @wraps(original)
    def fetch(client: Any, req: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        locks = _locks_of(client)
        with ExitStack() as held:
            if locks is not None:
                held.enter_context(locks.locked(req.plan))
            try:
                yield from original(client, req, *args, **kwargs)
            except GeneratorExit:  # the caller closed the iterator: the request has not failed
                held.close()
                raise

    return fetch


def _noted(original: Any) -> Any:
    @wraps(original)
    def analyze(client: Any, method: str, **kwargs: Any) -> Any:
        locks = _locks_of(client) if method == "persist" else None
        with locks.caches.creating() if locks is not None else nullcontext():
            return original(client, method, **kwargs)

    return analyze
