"""Replaces the methods of PySpark's classes that run statements, while locks are enabled.

Methods that only describe data, such as ``filter``, are not replaced.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spark.commands import DELTA
from airflow_hivelock.spark.learning import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from airflow_hivelock.spark.statements import StatementLocks

ACTIONS = tuple(
    """
    approxQuantile checkpoint collect corr count cov crosstab describe first foreach foreachPartition freqItems head
    isEmpty localCheckpoint show summary tail take toArrow toPandas transpose
    """.split()  # noqa: SIM905
)
"""The methods of a DataFrame that read its data at once."""

PATHS = ("csv", "json", "orc", "parquet", "save", "text", "xml")
"""The methods of a DataFrameWriter that take a path."""

FROM_ROWS = ("csv", "json", "xml")
"""The methods of a DataFrameReader that take a DataFrame of texts."""

WRITES_V2 = ("append", "create", "createOrReplace", "overwrite", "overwritePartitions", "replace")

CHANGES = ("createExternalTable", "createTable", "dropTable", "dropView", "recoverPartitions", "truncateTable")
"""The methods of ``spark.catalog`` whose first argument is the table that they change."""

_NAMED = ("tableName", "viewName", "dbName")
"""The names of that argument. It can come after other arguments: ``analyzeTable(noScan=True, tableName="dw.t")``."""

UNDER_A_LEASE = "read it under a lease that names its data, HiveLocks.lease(reads=[…]), and use it there"

_changed: list[tuple[type, str, Any]] = []
"""The replaced methods: class, name, and the original method. None if the class had inherited the method."""

_enabled: list[StatementLocks] = []


def install(locks: StatementLocks) -> None:
    """Make PySpark's classes use *locks*. Close all other locks of this process."""
    for other in [*_enabled]:
        remove(other)
        other.close()
    _enabled.append(locks)
    _change_all()


def remove(locks: StatementLocks) -> None:
    """Restore PySpark's own methods."""
    if locks in _enabled:
        _enabled.remove(locks)
        while _changed:
            cls, name, original = _changed.pop()
            if original is None:
                delattr(cls, name)
            else:
                setattr(cls, name, original)


def active_session() -> Any:
    """The session of this thread, or None."""
    return import_module("pyspark.sql").SparkSession.getActiveSession()


def _locks_of(session: Any) -> StatementLocks | None:
    return next((locks for locks in _enabled if locks.begins_statement(session)), None)


def _change(cls: type, name: str, made: Callable[[Any], Any]) -> None:
    """Replace one method, if this PySpark has it."""
    inherited = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if inherited is not None:
        _changed.append((cls, name, vars(cls).get(name)))
        setattr(cls, name, made(inherited))


def _change_all() -> None:
    sql = import_module("pyspark.sql")
    frame = _frame()
    _change(sql.SparkSession, "sql", _sql)
    for name in ACTIONS:
        _change(frame, name, _action)
    for name in ("__repr__", "_repr_html_"):
        _change(frame, name, _representation)
    _change(frame, "toLocalIterator", _iterator)
    _change(frame, "toJSON", _as_rdd)
    _change(frame, "rdd", _rdd)
    writers = import_module("pyspark.sql.readwriter")
    streams = import_module("pyspark.sql.streaming.readwriter").DataStreamWriter
    for name in FROM_ROWS:
        _change(writers.DataFrameReader, name, _of_rows)
    for writer in (writers.DataFrameWriter, writers.DataFrameWriterV2, streams):
        _change(writer, "__init__", _remembering_options)
        for name in ("option", "options"):
            _change(writer, name, _remembered)
    for name in PATHS:
        _change(writers.DataFrameWriter, name, _to_path)
    _change(writers.DataFrameWriter, "jdbc", _reads_only)
    for name in ("insertInto", "saveAsTable"):
        _change(writers.DataFrameWriter, name, _to_table)
    _change(writers.DataFrameWriterV2, "__init__", _remembering_table)
    for name in WRITES_V2:
        _change(writers.DataFrameWriterV2, name, _to_remembered_table)
    with suppress(ImportError):  # not in Spark 3.5
        merge = import_module("pyspark.sql.merge").MergeIntoWriter
        _change(merge, "__init__", _remembering_table)
        _change(merge, "merge", _to_remembered_table)
    catalog = import_module("pyspark.sql.catalog").Catalog
    for name in CHANGES:
        _change(catalog, name, _catalog(writes=True))
    _change(catalog, "analyzeTable", _catalog(writes=False))
    _change(catalog, "dropDatabase", _catalog(writes=True, database=True))
    _change(import_module("pyspark.sql.group").GroupedData, "pivot", _pivot)
    for name in ("start", "toTable"):
        _change(streams, name, _stream)
    with suppress(ImportError):  # it needs NumPy
        Learning(_change, _locks_of, frame).change_all()
    with suppress(ImportError):
        delta = import_module("delta.tables")
        for cls, names in DELTA.items():
            for name in names:
                _change(getattr(delta, cls, object), name, _in_the_jvm)
        _change(delta.DeltaTable, "convertToDelta", _converting)


def _frame() -> type:
    """PySpark's class of DataFrames with a JVM."""
    try:
        found: type = import_module("pyspark.sql.classic.dataframe").DataFrame
    except ImportError:  # Spark 3.5
        found = import_module("pyspark.sql.dataframe").DataFrame
    return found


def _sql(original: Any) -> Any:
    @wraps(original)
    def sql(session: Any, sqlQuery: str, args: Any = None, **kwargs: Any) -> Any:
        locks = _locks_of(session)
        if locks is None:
            return original(session, sqlQuery, args, **kwargs)
        formatter = import_module("pyspark.sql.sql_formatter").SQLStringFormatter(session) if kwargs else None
        text = formatter.format(sqlQuery, **kwargs) if formatter else sqlQuery
        try:
            with locks.statement(session, text, args) as run:
                return _frame()(run(), session) if run else original(session, text, args)
        finally:
            if formatter:
                formatter.clear()

    return sql


def _under_locks(
    session: Callable[..., Any], hold: Callable[[StatementLocks, Any, str, Any, Any], AbstractContextManager[Any]]
) -> Callable[[Any], Any]:
    """The replacement of methods that run a statement: the original method runs under the statement's locks.

    :param session: returns the session, from the object that has the method and the call's positional arguments.
    :param hold: holds the locks. It gets the object, the method's name and the arguments of the call.
    """

    def made(original: Any) -> Any:
        @wraps(original)
        def method(of: Any, *args: Any, **kwargs: Any) -> Any:
            locks = _locks_of(session(of, *args))
            with hold(locks, of, original.__name__, args, kwargs) if locks else nullcontext():
                return original(of, *args, **kwargs)

        return method

    return made


def _of_writer(writer: Any, *_: Any) -> Any:
    return writer._df.sparkSession


_action = _under_locks(
    lambda frame, *_: frame.sparkSession, lambda locks, frame, name, *_: locks.action(frame, f"DataFrame.{name}")
)
_reads_only = _under_locks(
    _of_writer, lambda locks, writer, name, *_: locks.action(writer._df, f"DataFrameWriter.{name}")
)
_in_the_jvm = _under_locks(
    lambda of, *_: of._spark, lambda locks, of, name, *_: locks.unplanned(f"{type(of).__name__}.{name}")
)


def _converting(original: Any) -> Any:
    """The replacement of ``DeltaTable.convertToDelta``, a method of the class."""
    convert = original.__func__

    @wraps(convert)
    def method(cls: type, sparkSession: Any, *args: Any, **kwargs: Any) -> Any:
        locks = _locks_of(sparkSession)
        with locks.unplanned("DeltaTable.convertToDelta") if locks else nullcontext():
            return convert(cls, sparkSession, *args, **kwargs)

    return classmethod(method)


def _representation(original: Any) -> Any:
    """The text of a DataFrame has its rows if ``spark.sql.repl.eagerEval.enabled`` is true."""
    locked = _action(original)

    @wraps(original)
    def representation(frame: Any) -> Any:
        shows_rows = frame.sparkSession.conf.get("spark.sql.repl.eagerEval.enabled").lower() == "true"
        return (locked if shows_rows else original)(frame)

    return representation


def _iterator(original: Any) -> Any:
    @wraps(original)
    def iterator(frame: Any, *args: Any, **kwargs: Any) -> Any:
        locks = _locks_of(frame.sparkSession)
        if locks is None:
            return original(frame, *args, **kwargs)
        return locks.rows(frame, lambda: original(frame, *args, **kwargs))

    return iterator


def _refuse_rdd(frame: Any) -> None:
    locks = _locks_of(frame.sparkSession)
    if locks is not None:
        locks.refuse_later(frame, "an RDD", UNDER_A_LEASE)


def _rdd(original: Any) -> Any:
    def rdd(frame: Any) -> Any:
        _refuse_rdd(frame)
        return original.__get__(frame)

    return property(rdd, doc=original.__doc__)


def _as_rdd(original: Any) -> Any:
    @wraps(original)
    def as_rdd(frame: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_rdd(frame)
        return original(frame, *args, **kwargs)

    return as_rdd


def _of_rows(original: Any) -> Any:
    """With a DataFrame in place of a path, the reader reads its rows now, and again later as an RDD."""

    @wraps(original)
    def read(reader: Any, *args: Any, **kwargs: Any) -> Any:
        rows: Any = args[0] if args else kwargs.get("path")
        is_frame = isinstance(rows, _frame())  # else it is a path, or an RDD
        if is_frame and (locks := _locks_of(rows.sparkSession)) is not None:
            locks.refuse_later(rows, f"spark.read.{original.__name__} of a DataFrame", UNDER_A_LEASE)
        return original(reader, *args, **kwargs)

    return read


def _remembering_options(original: Any) -> Any:
    @wraps(original)
    def init(writer: Any, *args: Any, **kwargs: Any) -> None:
        original(writer, *args, **kwargs)
        writer._hive_lock_path = ""

    return init


def _remembered(original: Any) -> Any:
    """Remember the option ``path``."""

    @wraps(original)
    def option(writer: Any, *args: Any, **kwargs: Any) -> Any:
        call = signature(original).bind(writer, *args, **kwargs).arguments
        writer._hive_lock_path = _path(writer, {str(call["key"]): call["value"]} if "key" in call else kwargs)
        return original(writer, *args, **kwargs)

    return option


def _path(writer: Any, options: Mapping[str, Any], path: Any = None) -> str:
    """*path*, or the option ``path`` of this call or of an earlier one. Spark ignores the case of an option's name."""
    named = (value for name, value in options.items() if name.lower() == "path" and value)
    return str(path or next(named, None) or getattr(writer, "_hive_lock_path", ""))


def _hold_path(locks: StatementLocks, writer: Any, name: str, args: Any, kwargs: Any) -> AbstractContextManager[None]:
    return locks.write(writer._df, f"DataFrameWriter.{name}", path=_path(writer, kwargs, *args[:1]))


def _hold_table(locks: StatementLocks, writer: Any, name: str, args: Any, kwargs: Any) -> AbstractContextManager[None]:
    table = args[0] if args else kwargs.get("tableName", kwargs.get("name", ""))
    return locks.write(writer._df, f"DataFrameWriter.{name}", table, _path(writer, kwargs))


_to_path, _to_table = _under_locks(_of_writer, _hold_path), _under_locks(_of_writer, _hold_table)


def _remembering_table(original: Any) -> Any:
    @wraps(original)
    def init(writer: Any, df: Any, table: str, *args: Any) -> None:
        original(writer, df, table, *args)
        writer._hive_lock_frame, writer._hive_lock_table = df, table

    return init


def _of_remembered(writer: Any, *_: Any) -> Any:
    if not hasattr(writer, "_hive_lock_table"):
        raise InvalidRequest("this writer is older than enable_hive_locks; create it again with DataFrame.writeTo")
    return writer._hive_lock_frame.sparkSession


_to_remembered_table = _under_locks(
    _of_remembered,
    lambda locks, writer, name, *_: locks.write(
        writer._hive_lock_frame, f"{type(writer).__name__}.{name}", writer._hive_lock_table, _path(writer, {})
    ),
)


def _catalog(*, writes: bool, database: bool = False) -> Callable[[Any], Any]:
    def hold(locks: StatementLocks, catalog: Any, name: str, args: Any, kwargs: Any) -> AbstractContextManager[None]:
        named = str(args[0] if args else next((kwargs[each] for each in _NAMED if each in kwargs), ""))
        table, of = ("", named) if database else (named, "")
        return locks.call(catalog._sparkSession, f"Catalog.{name}", table, of, writes)

    return _under_locks(lambda catalog, *_: catalog._sparkSession, hold)


def _pivot(original: Any) -> Any:
    """Without *values*, ``pivot`` reads the distinct values at once."""
    locked = _under_locks(
        lambda grouped, *_: grouped._df.sparkSession,
        lambda locks, grouped, *_: locks.action(grouped._df, "GroupedData.pivot"),
    )(original)

    @wraps(original)
    def pivot(grouped: Any, pivot_col: str, values: Any = None) -> Any:
        return (locked if values is None else original)(grouped, pivot_col, values)

    return pivot


def _stream(original: Any) -> Any:
    """A stream continues after the call. With foreachBatch each batch takes its own locks."""

    @wraps(original)
    def start(writer: Any, *args: Any, **kwargs: Any) -> Any:
        locks = _locks_of(writer._df.sparkSession)
        if locks is not None:
            if original.__name__ == "toTable":
                raise InvalidRequest(
                    "a stream into a table never ends, so its locks would never be released; write each batch with "
                    "foreachBatch, which locks each batch"
                )
            locks.refuse_stream(writer._df, _path(writer, kwargs, *args[:1]))
        return original(writer, *args, **kwargs)

    return start
