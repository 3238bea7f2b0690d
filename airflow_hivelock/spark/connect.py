"""Hive's locks around each statement of a Spark Connect session. It has no plan, so the text planner serves it.

All that such a session runs goes through two methods of its client. What cannot be planned there is refused.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spark.connect_plans import ConnectPlans, Request
from airflow_hivelock.spark.holding import Planned, hold
from airflow_hivelock.spark.leases import DriverName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.plan.text import Plan
    from airflow_hivelock.spark.leases import DriverLeases

_RUNS = "_execute"
_FETCHES = "_execute_and_fetch_as_iterator"
"""The two methods of the client that send a plan to run. All others use them."""

_originals: dict[str, Any] = {}
_enabled: dict[int, ConnectLocks] = {}
"""By the id of their client: the locks of each session."""

_asking: ContextVar[bool] = ContextVar("asking", default=False)
"""Whether this thread asks for what the locks need, which takes none."""


def is_connect(spark: Any) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class ConnectLocks:
    """Holds the locks of a request for as long as it runs.

    :param spark: the session.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.name = f"Spark Connect at {spark.client.host}"
        self.driver = DriverName(spark.conf.get("spark.app.id", None) or "?", self.name)
        self._plans = ConnectPlans(self._ask)
        self._leases: DriverLeases | None = None

    @property
    def tables(self) -> Catalog:
        """The session's catalog."""
        return self._plans.tables

    def sets(self, setting: str) -> bool:
        """Whether the session sets it."""
        return setting in {row["key"] for row in self._ask("SET")}

    def work(self, keeper: str) -> tuple[str, str]:
        """Refuse a keeper.

        :raises InvalidRequest: the server goes on after its client has died, and no record shows what it still runs.
        """
        raise InvalidRequest(
            f"keeper={keeper!r}: in Spark Connect no keeper can judge a lease, because the server goes on after its client has "
            "died; leave it out"
        )

    def explained(self, statement: Any) -> Plan:
        """The locks of SQL, or of a DataFrame."""
        if isinstance(statement, str):
            request = Request((statement,))
        else:
            request = self._plans.read(statement._plan.to_proto(self._spark.client))
        try:
            found = self._plans.plan(request)
        finally:
            self._plans.ended(request, well=False)
        assert found is not None
        return found[0]

    def begin(self, leases: DriverLeases) -> None:
        """Lock each request from now on."""
        self._leases = leases
        for name in (_RUNS, _FETCHES):
            cls = _client()
            if name not in _originals:
                _originals[name] = vars(cls)[name]
                setattr(cls, name, (_locked if name == _RUNS else _locked_rows)(_originals[name]))
        _enabled[id(self._spark.client)] = self

    def end(self) -> None:
        """Stop locking."""
        _enabled.pop(id(self._spark.client), None)
        while _originals and not _enabled:
            setattr(_client(), *_originals.popitem())

    def cancel(self) -> None:
        """Tell the server to end what the session runs."""
        self._spark.interruptAll()

    def interrupt(self) -> bool:
        """Tell the server to end what the session runs. Return False: it does not report when that has ended."""
        self.cancel()
        return False

    @contextmanager
    def running(self, plan: Any) -> Iterator[None]:
        """Around a request with the message *plan*."""
        assert self._leases is not None
        request = self._plans.read(plan)
        well = False
        try:
            with hold(self._leases, partial(self._planned, request), request.name):
                yield
            well = True
        finally:
            self._plans.ended(request, well=well)

    def is_of_server(self, client: Any) -> bool:
        """Whether *client* talks to the server of this session."""
        return bool(client.host == self._spark.client.host)

    def _planned(self, request: Request) -> Planned | None:
        found = self._plans.plan(request)
        return found and Planned(found[0], lambda: self._again(request, found[1]))

    def _again(self, request: Request, tables: Sequence[LockObject]) -> Planned | None:
        self._refresh(tables)
        return self._planned(request)

    def _refresh(self, tables: Sequence[LockObject]) -> None:
        """Have the server list the files of the *tables* again: what it has listed may be from before the locks."""
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
    """The locks of the client's session; None if its server has none.

    :raises InvalidRequest: other sessions of this server lock.
    """
    if _asking.get():
        return None
    locks = _enabled.get(id(client))
    if locks is None and any(each.is_of_server(client) for each in _enabled.values()):
        raise InvalidRequest(
            "this session of Spark Connect takes no locks, and another one of the same server does; call enable_hive_locks for "
            "it, too"
        )
    return locks


def _locked(original: Any) -> Any:
    @wraps(original)
    def run(client: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        locks = _locks_of(client)
        if locks is None:
            return original(client, req, *args, **kwargs)
        with locks.running(req.plan):
            return original(client, req, *args, **kwargs)

    return run


def _locked_rows(original: Any) -> Any:
    """The locks are held until the last row, or until the iterator is closed."""

    @wraps(original)
    def fetch(client: Any, req: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        locks = _locks_of(client)
        with ExitStack() as held:
            if locks is not None:
                held.enter_context(locks.running(req.plan))
            try:
                yield from original(client, req, *args, **kwargs)
            except GeneratorExit:  # no failure: the rest is not wanted
                held.close()
                raise

    return fetch
