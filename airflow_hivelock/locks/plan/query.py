"""A query, parsed by sqlglot, to the tables that it reads and the conditions on them.

Every table that the tree names is read; conditions only ever narrow. They are taken from WHERE and ON, and handed down
into subqueries, CTEs, views and the branches of unions, where the engine hands them down as well: see :mod:`.scope`.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan import rewrite
from airflow_hivelock.locks.plan.condition import ALWAYS, Condition, all_of
from airflow_hivelock.locks.plan.predicate import Predicates
from airflow_hivelock.locks.plan.scope import Source, handed_down, read_twice, renamed, sources, to_right_branch
from airflow_hivelock.locks.plan.sql import NEXT_STEP, WHICH_NAME, ScriptDialect, Sql, Statement, placed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Token

    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.plan.session import SessionState

MOST_REFERENCES = 2_000
"""The limit of references to tables, views and CTEs in one text. Each reference counts, also one through a view."""

FUNCTIONS = frozenset(
    [
        *("EXPLODE", "EXPLODE_OUTER", "INLINE", "INLINE_OUTER", "JSON_TUPLE", "POSEXPLODE", "POSEXPLODE_OUTER"),
        *(
            "COLLATIONS",
            "RANGE",
            "SEQUENCE",
            "SQL_KEYWORDS",
            "STACK",
            "VALUES",
            "VARIANT_EXPLODE",
            "VARIANT_EXPLODE_OUTER",
        ),
    ]
)
"""Table functions that read no table."""

_MAKE_IT = "put its CREATE FUNCTION into the same SQL, or name reads and writes instead"
"""A function in SQL, which is stored in the metastore, may read any table."""

_NOT_UNDERSTOOD = "what this reads is not understood"

log = logging.getLogger(__name__)

_TREES = (exp.Query, exp.Values)
_HANDED_DOWN = ("this", "expression", "distinct", "with_")
"""The parts of a UNION past which engines hand conditions down."""


@dataclass(frozen=True)
class Scan:
    """A table that is read: those of its rows that make *condition* true."""

    table: LockObject
    condition: Condition = ALWAYS


@dataclass(frozen=True, eq=False)
class Named:
    """A query with a name: a CTE or a temporary view.

    :param reader: the reader of names in it.
    :param renamed: whether its columns have other names outside, or no condition from there reaches it.
    """

    tree: exp.Expr
    reader: Reader
    scope: Mapping[str, Named]
    renamed: bool = False


_FORMATS = frozenset("avro binaryfile csv delta hudi iceberg json orc parquet text xml".split())  # noqa: SIM905


def parse(statement: Statement, tokens: Sequence[Token]) -> exp.Expr:
    """The one tree of *tokens*, a part of *statement*.

    :raises InvalidRequest: they are not understood.
    """
    tokens = tuple(tokens)
    if (tree := statement.sql.tree(tokens)) is None:
        tree = _parse(statement, list(tokens))
        statement.sql.keep(tokens, tree)
    return tree


def _parse(statement: Statement, tokens: list[Token]) -> exp.Expr:
    if not tokens:
        statement.refuse(None, "a query is wanted here")
    tokens = rewrite.query(tokens)
    if (deep := rewrite.nested(tokens)) is not None:
        statement.refuse(deep, f"nested more than {rewrite.MOST_NESTED} deep")
    try:
        trees = ScriptDialect().parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, statement.text)
    except RecursionError:
        raise
    except ParseError as error:  # its own words are about its grammar, not about SQL
        found = error.errors[0]
        line, end = found["line"] or 1, found["col"] or 1
        start = sum(len(text) + 1 for text in statement.text.split("\n")[: line - 1])
        at = max(start, start + end - len(found["highlight"] or " "))
        raise InvalidRequest(placed(statement.text, at, _NOT_UNDERSTOOD)) from error
    except Exception as error:  # some input breaks the parser itself
        raise InvalidRequest(placed(statement.text, tokens[0].start, _NOT_UNDERSTOOD)) from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, (*_TREES, exp.Merge, exp.Update, exp.Delete)):
        statement.refuse(tokens[0], _NOT_UNDERSTOOD)
    _check_nothing_lost(statement, tokens, tree)
    for from_ in tree.find_all(exp.From):
        # FROM first, as in Hive's multi-insert: sqlglot hangs the joins below the first table.
        if (joins := from_.this.args.get("joins")) and isinstance(from_.parent, exp.Select):
            from_.this.set("joins", None)
            from_.parent.set("joins", [*joins, *(from_.parent.args.get("joins") or ())])
    return tree


def _check_nothing_lost(statement: Statement, tokens: list[Token], tree: exp.Expr) -> None:
    """Each SELECT and JOIN that is written is one in the tree: else sqlglot took some for something else."""
    written = Counter(token.token_type for token in tokens)
    for kind, node in ((TokenType.SELECT, exp.Select), (TokenType.JOIN, exp.Join)):
        if written[kind] > sum(1 for _ in tree.find_all(node)):
            statement.refuse(tokens[0], f"this is not understood: not every {kind.name} in it was recognised")
    stray = next((token for token in tokens if token.token_type is TokenType.TABLE), None)
    if stray is not None and isinstance(tree, _TREES):
        statement.refuse(stray, "TABLE is not understood here")


class Reader:
    """Collects the objects that queries read.

    :ivar scans: the tables that are read.
    :ivar looks: the views that are read through.
    """

    def __init__(
        self, session: SessionState[Named], statement: Statement, scans: list[Scan], looks: list[LockObject]
    ) -> None:
        self.session = session
        self.statement = statement
        self.scans = scans
        self.looks = looks
        self._predicates = Predicates(statement)
        self._views: tuple[LockObject, ...] = ()

    def read(self, tree: exp.Expr) -> None:
        """Add what *tree*, a query or a part of one, reads."""
        self._visit(tree, {})

    def read_view(self, view: LockObject, text: str, condition: Condition = ALWAYS) -> None:
        """Add *view*, and the tables that its query *text* reads."""
        self.looks.append(view)
        self.read_named(self.stored(view, text), condition)

    def read_named(self, named: Named, condition: Condition = ALWAYS) -> None:
        """Add what *named* reads."""
        named.reader._query(named.tree, condition, named.scope)

    def stored(self, view: LockObject, text: str) -> Named:
        """The query *text* of *view*."""
        try:
            (statement,) = Sql(text).statements
            tree = parse(statement, statement.tokens)
        except ValueError as error:
            raise InvalidRequest(f"the text of the view {view} is not understood: {error}") from error
        inside = Reader(self.session.inside(view), statement, self.scans, self.looks)
        inside._views = (*self._views, view)
        return Named(tree, inside, {})

    def read_but(self, tree: exp.Expr, part: str) -> None:
        """The same, without one part. Parts below the name of a table there are read."""
        scope = self._with(tree, {})
        self._rest(tree.args[part], ("this", "db", "catalog"), scope)
        self._rest(tree, ("with_", part), scope)

    def target(self, table: exp.Table) -> LockObject:
        """The table of that name."""
        return self._object(table)

    # Expressions: a table anywhere is read.

    def _visit(self, node: exp.Expr, scope: Mapping[str, Named]) -> None:
        # Not by recursion: a chain of ORs is nested as deep as it is long.
        for child in node.walk(prune=lambda each: isinstance(each, exp.Table | exp.Query)):
            if isinstance(child, exp.Table):
                self._table(child, ALWAYS, scope)
            elif isinstance(child, exp.Query):
                self._query(child, ALWAYS, scope)
            elif isinstance(child, exp.Anonymous):
                self._call(child.name)
            elif isinstance(child, exp.Command):
                self._refuse(child, "this is not understood")

    def _with(self, node: exp.Expr, scope: Mapping[str, Named]) -> Mapping[str, Named]:
        """*scope* and the CTEs of *node*.

        One that nothing after it refers to is read all the same; and whole where one before it names it: in Hive that is
        the CTE, in Spark a table.
        """
        if (with_ := node.args.get("with_")) is None:
            return scope
        scope = dict(scope)
        everywhere, upto = _references(node), Counter[str]()
        for cte in with_.expressions:
            name = cte.alias.lower()
            if with_.recursive:
                scope[name] = Named(exp.Values(expressions=[]), self, {})
            own = _references(cte)
            upto += own
            if everywhere[name] == upto[name] or upto[name] > own[name]:
                self._query(cte.this, ALWAYS, scope)
            columns = cte.args["alias"].columns
            is_recursive = bool(with_.recursive and own[name])  # what it says of its rows holds for no single step
            scope[name] = Named(cte.this, self, dict(scope), bool(columns) or is_recursive)
        return scope

    # Queries: their conditions reach their sources.

    def _query(self, node: exp.Expr, outer: Condition, scope: Mapping[str, Named]) -> None:
        scope = self._with(node, scope)
        while isinstance(node, exp.Union):  # a chain of them is nested as deep as it is long
            whole = not any(value for part, value in node.args.items() if part not in _HANDED_DOWN)
            columns_of = partial(self._partition_columns, scope=scope)
            self._query(node.expression, to_right_branch(node, outer, columns_of) if whole else ALWAYS, scope)
            self._rest(node, ("with_", "this", "expression"), scope)
            node, outer = node.this, outer.renamed(lambda name: name, widened=True) if whole else ALWAYS
            scope = self._with(node, scope)
        if isinstance(node, exp.Select):
            self._select(node, outer, scope)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            plain = not any(value for part, value in node.args.items() if part not in ("this", "alias", "with_"))
            self._query(node.this, outer if plain and not renamed(node) else ALWAYS, scope)
            self._rest(node, ("with_", "this", "alias"), scope)
        else:
            self._rest(node, ("with_",), scope)

    def _select(self, select: exp.Select, outer: Condition, scope: Mapping[str, Named]) -> None:
        named = sources(select)
        if sum(isinstance(source.node, exp.Table) for source in named) > MOST_REFERENCES:
            self._refuse_more(named[MOST_REFERENCES].node)
        known = [self._known(source, scope) for source in named]
        narrows = not read_twice(select)
        handed = handed_down(select, known, outer, self.statement.text)
        conditions = zip(self._predicates.of_sources(select, known), handed, strict=True)
        for source, demanded in zip(known, conditions, strict=True):
            condition = all_of(demanded)
            self._source(source.node, condition if narrows and source.narrows else ALWAYS, scope)
            if source.join is not None:
                self._rest(source.join, ("this",), scope)
        self._rest(select, ("with_", "from_", "joins"), scope)

    def _source(self, node: exp.Expr, condition: Condition, scope: Mapping[str, Named]) -> None:
        if isinstance(node, exp.Table):
            self._table(node, condition, scope)
        elif isinstance(node, exp.Subquery):
            self._query(node, condition, scope)
        else:
            self._visit(node, scope)

    def _rest(self, node: exp.Expr, done: tuple[str, ...], scope: Mapping[str, Named]) -> None:
        """Read the other parts of *node*: those that are not in *done*."""
        for part, value in node.args.items():
            for child in value if isinstance(value, list) else [value]:
                if part not in done and isinstance(child, exp.Expr):
                    self._visit(child, scope)

    # Tables, views and CTEs.

    def _known(self, source: Source, scope: Mapping[str, Named]) -> Source:
        """*source* with what is known of it, if it is a table."""
        node = source.node
        if not isinstance(node, exp.Table) or self._meanings(node, scope) != (None,):
            return source
        target = self._object(node)
        table = self.session.tables.table(target)
        if table is None:
            return replace(source, database=target.database)
        kinds = dict(zip(table.partition_columns, table.partition_types, strict=False)) if source.narrows else {}
        return replace(source, columns=frozenset(table.partition_columns), database=target.database, kinds=kinds)

    def _partition_columns(self, node: exp.Table, scope: Mapping[str, Named]) -> Sequence[str]:
        """Those of a table, which what it is read by a star ends with; nothing for a view, and where they are not known."""
        if self._meanings(node, scope) != (None,):
            return ()
        table = self.session.tables.table(self._object(node))
        return table.partition_columns if table and not table.view_text else ()

    def _table(self, node: exp.Table, condition: Condition, scope: Mapping[str, Named]) -> None:
        self._rest(node, ("this", "db", "catalog"), scope)
        if isinstance(node.this, exp.Func):
            self._function(node, scope)
            return
        if not isinstance(node.this, exp.Identifier):
            self._refuse(node, "this is not the name of a table of Hive's")
        if _by_path(node):
            log.warning("%s is read by its path: where it belongs to a table, name that in reads as well", node.name)
            return
        if self.session.refers_again() > MOST_REFERENCES:
            self._refuse_more(node)
        for named in self._meanings(node, scope):
            if named is None:
                self._object_read(node, condition)
            else:
                self._once(named, ALWAYS if named.renamed or renamed(node) else condition)

    def _once(self, named: Named, condition: Condition = ALWAYS) -> None:
        """Add what *named* reads, unless it is being read: it refers to itself."""
        if named not in self.session.being_read:
            self.session.being_read.append(named)
            self.read_named(named, condition)
            self.session.being_read.pop()

    def _call(self, function: str) -> bool:
        """Add what a function of this session's reads; whether there is one."""
        if (named := self.session.functions.get(function.lower())) is not None:
            self._once(named)
        return named is not None

    def _object_read(self, node: exp.Table, condition: Condition) -> None:
        target = self._object(node)
        if (text := self.session.view_text(target)) is not None:
            if target in self._views:
                self._refuse(node, f"the view {target} reads itself")
            self.read_view(target, text, condition)
        elif not self.session.is_temporary(target):
            self.scans.append(Scan(target, condition))

    def _meanings(self, node: exp.Table, scope: Mapping[str, Named]) -> tuple[Named | None, ...]:
        """The CTE or the views of this session that *node* refers to; None for what else has its name."""
        if not isinstance(node.this, exp.Identifier) or _by_path(node):
            return ()
        parts = tuple(part.name.lower() for part in node.parts)
        if len(parts) == 1 and parts[0] in scope:
            return (scope[parts[0]],)
        try:
            return self.session.meanings(parts)
        except InvalidRequest as error:
            self._refuse(node, str(error))

    def _function(self, node: exp.Table, scope: Mapping[str, Named]) -> None:
        name = node.this.name if isinstance(node.this, exp.Anonymous) else node.this.sql_name()
        if name.upper() == "IDENTIFIER":
            self._refuse(node, WHICH_NAME, step="")
        if name.upper() not in FUNCTIONS and not self._call(name):
            self._refuse(node, f"what the table function {name} reads is not known", step=_MAKE_IT)
        self._visit(node.this, scope)

    def _object(self, node: exp.Table) -> LockObject:
        parts = tuple(part.name for part in node.parts)
        try:
            return self.session.resolve(parts)
        except InvalidRequest as error:
            self._refuse(node, str(error))

    def _refuse_more(self, node: exp.Expr) -> NoReturn:
        self._refuse(node, f"the SQL refers to more than {MOST_REFERENCES:,} tables; plan it in parts", step="")

    def _refuse(self, node: exp.Expr, why: str, step: str = NEXT_STEP) -> NoReturn:
        """:raises InvalidRequest: with the place of *node*, if sqlglot has kept it."""
        meta: dict[str, Any] = next((part.meta for part in node.walk() if "start" in part.meta), {})
        start = meta.get("start", self.statement.tokens[0].start if self.statement.tokens else 0)
        raise InvalidRequest(placed(self.statement.text, start, why, step))


def _by_path(node: exp.Table) -> bool:
    """Whether that is Spark's ``json.`/path```. A name in Hive can contain a ``/``, so the format must be a known one."""
    return node.args.get("catalog") is None and node.db.lower() in _FORMATS and "/" in node.name


def _references(node: exp.Expr) -> Counter[str]:
    """How often a table, view or CTE of each name is referred to."""
    return Counter(table.name.lower() for table in node.find_all(exp.Table) if not table.db)
