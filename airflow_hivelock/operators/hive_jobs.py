"""Jobs that run in Hive, which takes locks of its own for each statement: what becomes of those under a lease.

Where both lock in one store, a statement would wait for the lease of its own task. In ZooKeeper its session is told to
take none, and Hive's other sessions meet the lease. In the metastore that would break what transactions rest on, so
the lease is given back before the statement, which locks for itself. Elsewhere the two do not meet, and Hive's stay.
"""

from __future__ import annotations

import copy
import re
from contextlib import closing
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest, Unsupported
from airflow_hivelock.locks.hive import sql
from airflow_hivelock.locks.hive.coverage import CONCURRENCY, NAMESPACE, TXN_MANAGER, root_of
from airflow_hivelock.locks.hive.settings import OFF
from airflow_hivelock.locks.hive.site import DEFAULTS
from airflow_hivelock.locks.plan import same_in
from airflow_hivelock.work.jobs.job import chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_hivelock.locks.backend import Capabilities
    from airflow_hivelock.locks.manager import LockManager

IN_METASTORE = "DbTxnManager"

_CLI = "airflow.providers.apache.hive.operators.hive.HiveOperator"
_SQL = "airflow.providers.common.sql.operators.sql.BaseSQLOperator"
_HIVESERVER2 = "airflow.providers.apache.hive.hooks.hive.HiveServer2Hook"

_TRANSPORT = "thrift.transport.TTransport.TTransportException"
_NOT_OPEN = 1

_OFF_ON_COMMAND_LINE = f"-hiveconf {CONCURRENCY}=false"


def get_ready(operator: Any) -> None:
    """Import what the functions below ask a HiveServer2 with. The hook of Hive's command line is made once its options are known."""
    if _hiveserver2(operator) is not None:
        import_module("pyhive.exc")


def take_no_locks(operator: Any, manager: LockManager) -> None:
    """Have what *operator* runs in a Hive that locks in ZooKeeper take no locks there, if the lease is in ZooKeeper, too.

    To be called before it works. What its ``hiveconfs`` say goes before. A server of SQL is asked when it is connected to: where
    its locks are in another namespace the two do not meet, and it keeps them.
    """
    if not (manager.capabilities.seen_by_hive and manager.capabilities.parents):
        return
    if _is(operator, _CLI):
        given = getattr(operator, "hive_cli_params", "")
        operator.hive_cli_params = f"{_OFF_ON_COMMAND_LINE} {given.removeprefix(_OFF_ON_COMMAND_LINE)}".strip()
    elif (hook := _hiveserver2(operator)) is not None:
        namespace = getattr(manager.backend, "namespace", None)
        hook.get_conn = _taking_none(hook.get_conn, f"connection {hook.get_conn_id()!r}", namespace)


def check_database(operator: Any) -> None:
    """Refuse to run SQL whose names without a database are in another one for its HiveServer2 than for its locks.

    :raises InvalidRequest: saying both.
    """
    hook = _hiveserver2(operator)
    if hook is None or not operator.lock_sql or operator.lock_sql != operator.own_sql():
        return
    conn_id = hook.get_conn_id()
    theirs = hook.get_connection(conn_id).schema or "default"
    ours = operator.lock_database
    if not same_in(ours, theirs, operator.lock_sql, operator.unpartitioned, operator.partition_columns):
        raise InvalidRequest(
            f"{operator.task_id}: its locks are on tables of {ours!r}, and connection {conn_id!r} begins in {theirs!r}: write the "
            f"database before the names in its SQL, or lock_database={theirs!r}"
        )


def locks_for_itself(operator: Any, store: Capabilities) -> bool:
    """Whether what *operator* runs takes its locks where the lease is, and has to: in the metastore. Asks its Hive."""
    if not store.seen_by_hive or store.parents:
        return False
    if _is(operator, _CLI):
        return _cli_locks_in_metastore(operator)
    if (hook := _hiveserver2(operator)) is None:
        return False
    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        return _locks(cursor) and _in_metastore(cursor)


def tell_when_connected(operator: Any, tell: Callable[[], None]) -> None:
    """Have *tell* be called before *operator* sends a statement to HiveServer2, which goes on with it when its client is gone.

    Measured on Hive 2.3.10, whether the client waits for the answer or asks how far it is. To be called last: it makes hooks.
    """
    if _is(operator, _CLI):
        if operator.hook.use_beeline:
            tell()
    elif (hook := _hiveserver2(operator)) is not None:
        hook.get_conn = _telling(hook.get_conn, tell)


def sends_statements(operator: Any) -> bool:
    """Whether *operator* sends statements to a server of SQL, or has beeline do so."""
    return _is(operator, _SQL) or _is(operator, _CLI)


def unanswered(error: BaseException) -> bool:
    """Whether *error* is of a connection that was lost: the statement that it had sent may go on."""
    return any(
        isinstance(each, EOFError | TimeoutError | BrokenPipeError | ConnectionResetError)
        or (_is(each, _TRANSPORT) and getattr(each, "type", None) != _NOT_OPEN)
        or (type(each).__name__ == "AirflowException" and "TTransportException" in str(each))  # as beeline prints it
        for each in chain(error)
    )


def _is(thing: object, path: str) -> bool:
    return any(f"{base.__module__}.{base.__qualname__}" == path for base in type(thing).__mro__)


def _hiveserver2(operator: Any) -> Any:
    """The hook of an operator of SQL that speaks to HiveServer2; None for any other operator."""
    hook: Any = operator.get_db_hook() if _is(operator, _SQL) else None
    if not _is(hook, _HIVESERVER2):
        return None
    # Impala, whose connection says so, knows neither the settings nor the locks.
    sets = hook.get_connection(hook.get_conn_id()).extra_dejson.get("run_set_variable_statements", True)
    return hook if sets else None


def _taking_none(connect: Callable[..., Any], server: str, namespace: str | None) -> Callable[..., Any]:
    @wraps(connect)
    def connected(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        try:
            with closing(connection.cursor()) as cursor:
                if _locks(cursor) and not _in_metastore(cursor) and _meets(cursor, namespace):
                    _turn_off(cursor, server)
        except BaseException:
            connection.close()
            raise
        return connection

    return connected


def _telling(connect: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    @wraps(connect)
    def connected(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        try:
            tell()
        except BaseException:
            connection.close()
            raise
        return connection

    return connected


def _turn_off(cursor: Any, server: str) -> None:
    from pyhive.exc import Error

    try:
        cursor.execute(OFF)
    except Error as error:
        raise Unsupported(
            f"{server}: its Hive would wait for the locks of this very task, and lets no session go without its own: "
            f"{sql.said(error)}. Take {CONCURRENCY} out of hive.conf.restricted.list, or add it to "
            "hive.security.authorization.sqlstd.confwhitelist.append; or leave locking to Hive, with the operator as it is"
        ) from error


def _locks(cursor: Any) -> bool:
    return sql.setting(cursor, CONCURRENCY) == "true"


def _in_metastore(cursor: Any) -> bool:
    return (sql.setting(cursor, TXN_MANAGER) or "").endswith(IN_METASTORE)


def _meets(cursor: Any, namespace: str | None) -> bool:
    return namespace in (None, root_of(sql.setting(cursor, NAMESPACE) or DEFAULTS[NAMESPACE]))


def _cli_locks_in_metastore(operator: Any) -> bool:
    hook = copy.copy(operator.hook)
    if hook.use_beeline:  # which cuts what is longer than a column of its tables
        hook.hive_cli_params += " --outputformat=tsv2"
    told = hook.run_cli(f"SET {CONCURRENCY};\nSET {TXN_MANAGER};", schema=operator.schema, verbose=False)
    return all(
        re.search(rf"{re.escape(name)}=\S*{value}\b", told)
        for name, value in ((CONCURRENCY, "true"), (TXN_MANAGER, IN_METASTORE))
    )
