"""ALTER TABLE, VIEW and DATABASE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.plan.condition import ALWAYS
from airflow_hivelock.locks.plan.create import DATABASES, ELSEWHERE, index_table, no_query, view_query
from airflow_hivelock.locks.plan.planner import QUERY

if TYPE_CHECKING:
    from airflow_hivelock.locks.plan.cursor import Cursor, Spec
    from airflow_hivelock.locks.plan.planner import Planner

_WHOLE = frozenset(
    [
        *(
            "ADD",
            "ALTER",
            "CHANGE",
            "CREATE",
            "EXECUTE",
            "OPTIMIZE",
            "WRITE",
            "CLUSTER",
            "CLUSTERED",
            "COMPACT",
            "CONCATENATE",
            "CONVERT",
            "DISABLE",
            "DROP",
            "ENABLE",
            "INTO",
            "NOT",
        ),
        *("RECOVER", "RENAME", "REPLACE", "SET", "SKEWED", "UNSET", "UPDATE"),
    ]
)
"""First words of changes that lock the table EXCLUSIVE, or only the partition that they name."""


def alter(cursor: Cursor, planner: Planner) -> None:
    """Plan the rest of a statement after ALTER."""
    if cursor.take_any(*DATABASES):
        planner.write(planner.database(cursor))
        if not cursor.take_any("SET", "UNSET", "DEFAULT"):
            cursor.refuse("this change of a database is not understood")
        cursor.rest()
    elif cursor.take("VIEW"):
        _view(cursor, planner)
    elif cursor.take("MATERIALIZED", "VIEW"):
        _view(cursor, planner, materialized=True)
    elif cursor.take("INDEX"):
        _index(cursor, planner)
    elif cursor.word() in ELSEWHERE:
        cursor.rest()
    else:
        cursor.expect("TABLE")
        start = cursor.at
        table, parts = planner.named(cursor)
        if len(parts) == 1 and planner.session.is_temporary_view(parts):  # Spark renames it
            cursor.at = start
            _view(cursor, planner)
        else:
            _table(cursor, planner, table)


def _view(cursor: Cursor, planner: Planner, materialized: bool = False) -> None:
    target, parts = planner.named(cursor)
    temporary = planner.session.is_temporary_view(parts)
    if not temporary:
        planner.write(target)
    cursor.take("AS")
    if cursor.word() in QUERY and not cursor.sees("WITH", "SCHEMA"):
        view_query(cursor, planner, parts, renamed=False, temporary=temporary)
    elif cursor.take("RENAME", "TO"):
        other, new = planner.named(cursor)
        names = _new_names(planner, target, other, new)
        if not temporary:
            _take_names(planner, names)
        cursor.end()
        named = planner.session.meanings(parts)[0]
        if named is None and (text := planner.session.view_text(target)):
            named = planner.reader(cursor.statement).stored(target, text)
        planner.session.forget(parts)
        if temporary and named:
            planner.session.add_temporary_view(new, named)
        else:
            for each in names:
                planner.session.add_view(each, named)
                planner.session.add_made(each)
    elif cursor.take("REBUILD"):
        cursor.end()
        known = planner.read_view(cursor.statement, target, ALWAYS, materialized)
        if not (known or planner.session.tables.checked):
            cursor.refuse(
                "the query of this view is not known; set a metastore, or name reads and writes instead", step=""
            )
    elif cursor.take("ADD"):
        cursor.take("IF", "NOT", "EXISTS")
        while not cursor.done():  # to add a partition of a view, Hive reads the view
            planner.read_view(cursor.statement, target, cursor.spec().condition(), materialized)
    elif cursor.take_any("SET", "UNSET", "DROP", "ENABLE", "DISABLE") or cursor.take("WITH", "SCHEMA"):
        no_query(cursor)
    else:
        cursor.refuse("this change of a view is not understood")


def _index(cursor: Cursor, planner: Planner) -> None:
    """``INDEX name ON t``. REBUILD writes the table that holds the index."""
    name = cursor.identifier()
    cursor.expect("ON")
    table = planner.table(cursor)
    spec = cursor.optional_spec()
    planner.look(table)
    if cursor.take("REBUILD"):
        holds, tables = index_table(name, table), planner.session.tables
        if holds not in planner.session.made and tables.table(holds) is None and not tables.checked:
            cursor.refuse("cannot tell which table holds this index")
        planner.scan(cursor.statement, table, spec)
        planner.write(holds)
        cursor.end()
    else:
        no_query(cursor)


def _table(cursor: Cursor, planner: Planner, table: LockObject) -> None:
    spec = None if cursor.sees("PARTITION", "COLUMN") else cursor.optional_spec()
    if cursor.sees("ADD", "PARTITION", "FIELD") or cursor.sees("DROP", "PARTITION", "FIELD"):  # of an Iceberg table
        planner.write(table)
        no_query(cursor)
    elif cursor.sees("ADD", "PARTITION") or cursor.sees("ADD", "IF", "NOT", "EXISTS", "PARTITION"):
        _add(cursor, planner, table)
    elif cursor.sees("DROP", "PARTITION") or cursor.sees("DROP", "IF", "EXISTS", "PARTITION"):
        _drop(cursor, planner, table)
    elif cursor.word() in ("TOUCH", "ARCHIVE", "UNARCHIVE"):
        touches = cursor.next().text.upper() == "TOUCH"
        spec = cursor.optional_spec()
        if touches and planner.as_hive:
            planner.look(table)
        else:
            _selected(cursor, planner, table, spec)
        cursor.end()
    elif cursor.take("EXCHANGE"):
        _exchange(cursor, planner, table)
    elif cursor.take("RENAME", "TO"):
        _rename(cursor, planner, table, spec)
    elif cursor.word().partition(" ")[0] in _WHOLE or cursor.sees("PARTITION", "COLUMN"):
        _selected(cursor, planner, table, spec, only_looks=_only_looks(cursor, planner, spec))
        no_query(cursor)
    else:
        cursor.refuse("this change of a table is not understood")


def _only_looks(cursor: Cursor, planner: Planner, spec: Spec | None) -> bool:
    """Whether this change locks SHARED instead of EXCLUSIVE. Hive's documents and real Hive differ on most of them."""
    if cursor.sees("SET", "SERDEPROPERTIES") or cursor.sees("UNSET", "SERDEPROPERTIES"):
        return spec is None or planner.as_hive
    if cursor.sees("SET", "SERDE") or cursor.sees("SET", "FILEFORMAT"):
        return spec is None and planner.as_documented
    described = (("SET", "TBLPROPERTIES"), ("PARTITION", "COLUMN"), ("UPDATE", "STATISTICS"))
    return planner.as_hive and any(cursor.sees(*words) for words in described)


def _selected(
    cursor: Cursor, planner: Planner, table: LockObject, spec: Spec | None, *, only_looks: bool = False
) -> None:
    """Add a write of the partitions that *spec* selects, or of the table. With *only_looks*, add them as looks."""
    selected = planner.partitions(cursor.statement, table, spec) if spec else [table]
    (planner.look if only_looks else planner.write)(*selected)
    planner.look(table)


def _add(cursor: Cursor, planner: Planner, table: LockObject) -> None:
    cursor.expect("ADD")
    cursor.take("IF", "NOT", "EXISTS")
    planner.look(table)
    while not cursor.done():
        added = planner.place(cursor.statement, table, cursor.spec())[0]
        if not planner.as_hive:
            planner.write(added)
        if cursor.take("LOCATION"):
            cursor.string()
        cursor.comma()


def _drop(cursor: Cursor, planner: Planner, table: LockObject) -> None:
    cursor.expect("DROP")
    cursor.take("IF", "EXISTS")
    planner.look(table)
    while cursor.sees("PARTITION"):
        planner.write(*planner.partitions(cursor.statement, table, cursor.spec(compared=True)))
        cursor.comma()
    if cursor.take("FOR", "METADATA", "REPLICATION") or cursor.take("IGNORE", "PROTECTION"):
        cursor.take("PURGE")
    cursor.take("PURGE")
    cursor.end()


def _exchange(cursor: Cursor, planner: Planner, table: LockObject) -> None:
    """``EXCHANGE PARTITION (…) WITH TABLE other``. It moves the partition from the other table to this one."""
    spec = cursor.spec()
    cursor.expect("WITH", "TABLE")
    other = planner.table(cursor)
    cursor.end()
    for each in (table, other):
        planner.write(planner.place(cursor.statement, each, spec)[0])
        planner.look(each)


def _rename(cursor: Cursor, planner: Planner, table: LockObject, spec: Spec | None) -> None:
    if spec is None:
        names = _new_names(planner, table, *planner.named(cursor))
        planner.write(table)
        if planner.session.is_temporary(table):
            planner.session.forget((table.database, table.table))
            planner.session.add_temporary(names[0])
            cursor.end()
            return
        planner.session.drop(table)
        _take_names(planner, names)
        for name in names:
            planner.session.add_made(name)
    else:
        for each in (spec, cursor.spec()):
            planner.write(planner.place(cursor.statement, table, each)[0])
    cursor.end()


def _new_names(planner: Planner, old: LockObject, new: LockObject, parts: tuple[str, ...]) -> list[LockObject]:
    """What RENAME of *old* can create. Without a database, Hive uses the current one, and Spark keeps the old one.

    :param new: the new name in the current database.
    :param parts: the parts of the new name.
    """
    if len(parts) > 1 or planner.as_hive or old.database == new.database:
        return [new]
    return [new, LockObject(old.database, new.table)]


def _take_names(planner: Planner, names: list[LockObject]) -> None:
    """Lock new names EXCLUSIVE, as CREATE does. Else a job that creates such a table would fail after its work.

    The documents and real Hive lock only the old name.
    """
    if planner.follows == "stricter":
        planner.write(*names)
    else:
        planner.look(*(LockObject(each.database) for each in names))
