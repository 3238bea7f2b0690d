"""Jobs that run in Hive, which takes its own locks for each statement.

If the lease and Hive's locks are in one store, a statement would wait for the lease of its own task. In ZooKeeper, the
task's session is set to take no locks, and Hive's other sessions see the lease. In the metastore that would break
Hive's transactions. So the lease is released before the statement, which locks for itself. In different stores the two
do not conflict, and Hive's locks stay.
"""

from __future__ import annotations

import copy
import re
from contextlib import closing
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.hive import sql
from airflow_hivelock.locks.hive.properties import (
    CONCURRENCY,
    DEFAULTS,
    IN_METASTORE,
    NAMESPACE,
    TXN_MANAGER,
    root_of,
)
from airflow_hivelock.locks.hive.settings import OFF
from airflow_hivelock.spec import LockSpec
from airflow_hivelock.work.jobs.job import chain, paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backend import Capabilities
    from airflow_hivelock.locks.manager import LockManager

_CLI = "airflow.providers.apache.hive.operators.hive.HiveOperator"
_SQL = "airflow.providers.common.sql.operators.sql.BaseSQLOperator"
_HIVESERVER2 = "airflow.providers.apache.hive.hooks.hive.HiveServer2Hook"
_IMPALA = "airflow.providers.apache.impala.hooks.impala.ImpalaHook"

_TRANSPORT = "thrift.transport.TTransport.TTransportException"
_NOT_OPEN = 1

_OFF_ON_COMMAND_LINE = f"-hiveconf {CONCURRENCY}=false"


def get_ready(operator: Any) -> None:
    """Import the modules for questions to a HiveServer2, if *operator* uses one."""
    if _hiveserver2(operator) is not None:
        import_module("pyhive.exc")


def take_no_locks(operator: Any, manager: LockManager) -> None:
    """Make *operator* take no locks in a Hive that locks in ZooKeeper, if the lease is also in ZooKeeper.

    Call it before the work. The operator's ``hiveconfs`` have precedence. A HiveServer2 is asked at each connection. If
    its locks are in another namespace, they do not conflict with the lease, and the server keeps its locks.
    """
    if not (manager.capabilities.seen_by_hive and manager.capabilities.parents):
        return
    if _is(operator, _CLI):
        parameters = getattr(operator, "hive_cli_params", "")
        operator.hive_cli_params = f"{_OFF_ON_COMMAND_LINE} {parameters.removeprefix(_OFF_ON_COMMAND_LINE)}".strip()
    elif (hook := _hiveserver2(operator)) is not None:
        namespace = getattr(manager.backend, "namespace", None)
        take_none = partial(_take_none, server=f"connection {hook.get_conn_id()!r}", namespace=namespace)
        hook.get_conn = _once_connected(hook.get_conn, take_none)


def check_database(operator: Any) -> None:
    """Check that the SQL's default database is the same for HiveServer2 and for the locks.

    :raises InvalidRequest: with both databases.
    """
    hook = _hiveserver2(operator)
    if hook is None or not operator.lock_sql or operator.lock_sql != operator.own_sql():
        return
    conn_id = hook.get_conn_id()
    theirs = hook.get_connection(conn_id).schema or "default"
    ours = operator.lock_database
    if not LockSpec.of(operator).task_sql.same_in(theirs):
        raise InvalidRequest(
            f"{operator.task_id}: its locks are on tables of {ours!r}, but connection {conn_id!r} starts in {theirs!r}. Write the "
            f"database before the names in its SQL, or set lock_database={theirs!r}"
        )


def locks_for_itself(operator: Any, store: Capabilities) -> bool:
    """Whether the work of *operator* has to take its own locks in the lease's store, the metastore. Ask its Hive."""
    if not store.seen_by_hive or store.parents:
        return False
    if _is(operator, _CLI):
        return _cli_locks_in_metastore(operator)
    if (hook := _hiveserver2(operator)) is None:
        return False
    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        return _locks(cursor) and _in_metastore(cursor)


def call_when_connected(operator: Any, act: Callable[[], None]) -> None:
    """Call *act* before *operator* sends a statement to HiveServer2 or Impala, which run it even without their client.

    Measured on Hive 2.3.10, for clients that wait and clients that poll. Call it last, because it creates hooks.
    """
    if _is(operator, _CLI):
        if operator.hook.use_beeline:
            act()
    elif (hook := _hook(operator, _HIVESERVER2, _IMPALA)) is not None:
        hook.get_conn = _once_connected(hook.get_conn, lambda _: act())


def sends_statements(operator: Any) -> bool:
    """Whether *operator* sends statements to a SQL server, directly or with beeline."""
    return _is(operator, _SQL) or _is(operator, _CLI)


def unanswered(error: BaseException) -> bool:
    """Whether *error* means a lost connection, so that the sent statement can still run."""
    return any(
        isinstance(each, EOFError | TimeoutError | BrokenPipeError | ConnectionResetError)
        or (_is(each, _TRANSPORT) and getattr(each, "type", None) != _NOT_OPEN)
        # the form that beeline prints
        or (type(each).__name__ == "AirflowException" and "TTransportException" in str(each))
        for each in chain(error)
    )


def _is(thing: object, path: str) -> bool:
    return path in paths(type(thing))


def _hiveserver2(operator: Any) -> Any:
    """The hook of a SQL operator for HiveServer2. None for any other operator, and for Impala."""
    if (hook := _hook(operator, _HIVESERVER2)) is None:
        return None
    # Impala does not have these settings and locks. Its connections have this mark.
    sets = hook.get_connection(hook.get_conn_id()).extra_dejson.get("run_set_variable_statements", True)
    return hook if sets else None


def _hook(operator: Any, *kinds: str) -> Any:
    """The hook of a SQL operator if its class is one of *kinds*, which are paths. None for any other operator."""
    hook: Any = operator.get_db_hook() if _is(operator, _SQL) else None
    return hook if any(_is(hook, kind) for kind in kinds) else None


def _once_connected(connect: Callable[..., Any], act: Callable[[Any], None]) -> Callable[..., Any]:
    """A wrapper of *connect* that calls *act* with each new connection. If *act* fails, the connection is closed."""

    @wraps(connect)
    def connected(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        try:
            act(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    return connected


def _take_none(connection: Any, server: str, namespace: str | None) -> None:
    with closing(connection.cursor()) as cursor:
        if _locks(cursor) and not _in_metastore(cursor) and _meets(cursor, namespace):
            _turn_off(cursor, server)


def _turn_off(cursor: Any, server: str) -> None:
    from pyhive.exc import Error

    try:
        cursor.execute(OFF)
    except Error as error:
        raise Unsupported(
            f"{server}: its Hive would wait for the locks of this task, and forbids the session to turn off its own: "
            f"{sql.reason_of(error)}. Remove {CONCURRENCY} from hive.conf.restricted.list, or add it to "
            "hive.security.authorization.sqlstd.confwhitelist.append. Or leave locking to Hive: use the operator without "
            "HiveLockMixin"
        ) from error


def _locks(cursor: Any) -> bool:
    return (sql.setting(cursor, CONCURRENCY) or "").lower() == "true"


def _in_metastore(cursor: Any) -> bool:
    return (sql.setting(cursor, TXN_MANAGER) or "").endswith(IN_METASTORE)


def _meets(cursor: Any, namespace: str | None) -> bool:
    return namespace in (None, root_of(sql.setting(cursor, NAMESPACE) or DEFAULTS[NAMESPACE]))


def _cli_locks_in_metastore(operator: Any) -> bool:
    hook = copy.copy(operator.hook)
    if hook.use_beeline:  # beeline cuts values that are longer than a column of its tables
        hook.hive_cli_params += " --outputformat=tsv2"
    output = hook.run_cli(f"SET {CONCURRENCY};\nSET {TXN_MANAGER};", schema=operator.schema, verbose=False)
    return all(
        re.search(rf"{re.escape(name)}=\S*{value}\b", output, re.IGNORECASE)
        for name, value in ((CONCURRENCY, "true"), (TXN_MANAGER, IN_METASTORE))
    )
