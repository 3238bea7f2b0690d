"""The reads of a query: each table in sqlglot's tree, with the conditions on the table's rows.

Conditions come from WHERE and ON. They are handed down into subqueries, CTEs, views and branches of unions, but only
where the engine hands them down too: see :mod:`.scope`. A condition never adds a read.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.plan import rewrite
from airflow_hivelock.locks.plan.condition import ALWAYS, Condition, all_of
from airflow_hivelock.locks.plan.ctes import Scope, references
from airflow_hivelock.locks.plan.predicate import Predicates
from airflow_hivelock.locks.plan.scope import Source, handed_down, read_twice, renamed, sources, to_right_branch
from airflow_hivelock.locks.plan.sql import NEXT_STEP, WHICH_NAME, ScriptDialect, Sql, Statement, placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

    from airflow_hivelock.locks.model import LockObject
    from airflow_hivelock.locks.plan.session import SessionState

MOST_REFERENCES = 2_000
"""The largest number of references to tables, views and CTEs in one text. References inside views count too."""

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
"""The next step for a function of unknown text. A function in SQL can read any table."""

_NOT_UNDERSTOOD = "this query is not understood"

log = logging.getLogger(__name__)

_TREES = (exp.Query, exp.Values)
_HANDED_DOWN = ("this", "expression", "distinct", "with_")
"""The parts of a UNION that do not stop engines from handing conditions down."""


@dataclass(frozen=True)
class Scan:
    """A read of the rows of *table* that make *condition* true."""

    table: LockObject
    condition: Condition = ALWAYS


@dataclass(frozen=True, eq=False)
class Named:
    """A query with a name: a CTE, a view or a function.

    :param reader: resolves the names in the query.
    :param scope: the CTEs that the query can name.
    :param renamed: whether outer conditions stop at the query, because its columns are renamed or it is recursive.
    """

    tree: exp.Expr
    reader: Reader
    scope: Scope[Named] = field(default_factory=Scope)
    renamed: bool = False


_FORMATS = frozenset("avro binaryfile csv delta hudi iceberg json orc parquet text xml".split())  # noqa: SIM905


def parse(statement: Statement, tokens: Sequence[Token]) -> exp.Expr:
    """The tree of *tokens*, which are part of *statement*.

    :raises InvalidRequest: the tokens are not understood.
    """
    tokens = tuple(tokens)
    if (tree := statement.sql.tree(tokens)) is None:
        tree = _parse(statement, list(tokens))
        statement.sql.keep(tokens, tree)
    return tree


def _parse(statement: Statement, tokens: list[Token]) -> exp.Expr:
    if not tokens:
        statement.refuse(None, "a query is missing here")
    tokens = rewrite.query(tokens)
    if (deep := rewrite.nested(tokens)) is not None:
        statement.refuse(deep, f"nested more than {rewrite.MOST_NESTED} deep")
    try:
        trees = ScriptDialect().parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, statement.text)
    except RecursionError:
        raise
    except ParseError as error:  # sqlglot's message describes its grammar, not the SQL
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
        # With FROM first, as in Hive's multi-insert, sqlglot puts the joins below the first table.
        if (joins := from_.this.args.get("joins")) and isinstance(from_.parent, exp.Select):
            from_.this.set("joins", None)
            from_.parent.set("joins", [*joins, *(from_.parent.args.get("joins") or ())])
    return tree


def _check_nothing_lost(statement: Statement, tokens: list[Token], tree: exp.Expr) -> None:
    """Refuse a tree with fewer SELECTs or JOINs than the text, because sqlglot has then misread one."""
    written = Counter(token.token_type for token in tokens)
    for kind, node in ((TokenType.SELECT, exp.Select), (TokenType.JOIN, exp.Join)):
        if written[kind] > sum(1 for _ in tree.find_all(node)):
            statement.refuse(tokens[0], f"this query is not understood: not every {kind.name} in it was recognised")
    stray = next((token for token in tokens if token.token_type is TokenType.TABLE), None)
    if stray is not None and isinstance(tree, _TREES):
        statement.refuse(stray, "TABLE is not understood here")


class Reader:
    """Collects the objects that queries read.

    :ivar scans: the tables that the queries read.
    :ivar looks: the views that the queries name.
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
        """Add the reads of *tree*, a query or a part of one."""
        self._visit(tree, Scope())

    def read_view(self, view: LockObject, text: str, condition: Condition = ALWAYS) -> None:
        """Add *view*, and the reads of its query *text*."""
        self.looks.append(view)
        self.read_named(self.stored(view, text), condition)

    def read_named(self, named: Named, condition: Condition = ALWAYS) -> None:
        """Add the reads of *named*, for the rows that make *condition* true."""
        named.reader._query(named.tree, condition, named.scope)

    def stored(self, view: LockObject, text: str) -> Named:
        """The query of *view*, whose text is *text*."""
        try:
            (statement,) = Sql(text).statements
            tree = parse(statement, statement.tokens)
        except ValueError as error:
            raise InvalidRequest(f"the text of the view {view} is not understood: {error}") from error
        inside = Reader(self.session.inside(view), statement, self.scans, self.looks)
        inside._views = (*self._views, view)
        return Named(tree, inside)

    def read_but(self, tree: exp.Expr, part: str) -> None:
        """Add the reads of *tree*, without the table in *part*. Other parts of that table node, such as joins, are read."""
        scope = self._with(tree, Scope())
        self._rest(tree.args[part], ("this", "db", "catalog"), scope)
        self._rest(tree, ("with_", part), scope)

    def target(self, table: exp.Table) -> LockObject:
        return self._object(table)

    def condition_on_target(self, tree: exp.Merge | exp.Update | exp.Delete) -> Condition:
        """The condition that is true for each row of the target that *tree* deletes or updates."""
        select = exp.Select(from_=exp.From(this=tree.this.copy()))
        where, on = tree.args.get("where"), tree.args.get("on")
        if isinstance(on, exp.Expr):  # not so for MERGE … USING u USING (column)
            select.set("joins", [exp.Join(this=tree.args["using"].copy(), on=on.copy())])
        elif where:
            select.set("where", where.copy())
        target, *others = sources(select)
        if not target.narrows or read_twice(select):
            return ALWAYS
        return self._predicates.of_sources(select, [self._known(target, Scope()), *others])[0]

    # Expressions: add each table in them as a read.

    def _visit(self, node: exp.Expr, scope: Scope[Named]) -> None:
        # No recursion, because a long chain of ORs is a deep tree.
        for child in node.walk(prune=lambda each: isinstance(each, exp.Table | exp.Query)):
            if isinstance(child, exp.Table):
                self._table(child, ALWAYS, scope)
            elif isinstance(child, exp.Query):
                self._query(child, ALWAYS, scope)
            elif isinstance(child, exp.Anonymous):
                self._call(child.name)
            elif isinstance(child, exp.Command):
                self._refuse(child, "this is not understood")

    def _with(self, node: exp.Expr, scope: Scope[Named]) -> Scope[Named]:
        """*scope* with the CTEs of *node*.

        Add the reads of a CTE that nothing later refers to. Also add all rows of a CTE whose name an earlier CTE uses: in
        Hive that name means the CTE, in Spark a table.
        """
        if (with_ := node.args.get("with_")) is None:
            return scope
        scope = Scope(scope)
        everywhere, upto = references(node), Counter[str]()
        for cte in with_.expressions:
            name = cte.alias.lower()
            if with_.recursive:
                scope = scope.plus(name, Named(exp.Values(expressions=[]), self))
            own = references(cte)
            upto.update(own)
            if everywhere[name] == upto[name] or upto[name] > own[name]:
                self._query(cte.this, ALWAYS, scope)
            columns = cte.args["alias"].columns
            is_recursive = bool(with_.recursive and own[name])  # outer conditions need not hold for each step
            scope = scope.plus(name, Named(cte.this, self, scope, bool(columns) or is_recursive))
        return scope

    # Queries: hand their conditions down to their sources.

    def _query(self, node: exp.Expr, outer: Condition, scope: Scope[Named]) -> None:
        scope = self._with(node, scope)
        while isinstance(node, exp.Union):  # a loop, because a long chain of unions is a deep tree
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

    def _select(self, select: exp.Select, outer: Condition, scope: Scope[Named]) -> None:
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

    def _source(self, node: exp.Expr, condition: Condition, scope: Scope[Named]) -> None:
        if isinstance(node, exp.Table):
            self._table(node, condition, scope)
        elif isinstance(node, exp.Subquery):
            self._query(node, condition, scope)
        else:
            self._visit(node, scope)

    def _rest(self, node: exp.Expr, done: tuple[str, ...], scope: Scope[Named]) -> None:
        """Add the reads of the parts of *node* that are not in *done*."""
        for part, value in node.args.items():
            for child in value if isinstance(value, list) else [value]:
                if part not in done and isinstance(child, exp.Expr):
                    self._visit(child, scope)

    # Tables, views and CTEs.

    def _known(self, source: Source, scope: Scope[Named]) -> Source:
        """*source* with its database, partition columns and types, if it is a table and they are known."""
        node = source.node
        if not isinstance(node, exp.Table) or self._meanings(node, scope) != (None,):
            return source
        target = self._object(node)
        table = self.session.tables.table(target)
        if table is None:
            return replace(source, database=target.database)
        kinds = dict(zip(table.partition_columns, table.partition_types, strict=False)) if source.narrows else {}
        return replace(source, columns=frozenset(table.partition_columns), database=target.database, kinds=kinds)

    def _partition_columns(self, node: exp.Table, scope: Scope[Named]) -> Sequence[str]:
        """The partition columns of a table. They end its ``*``. Empty for a view or if not known."""
        if self._meanings(node, scope) != (None,):
            return ()
        table = self.session.tables.table(self._object(node))
        return table.partition_columns if table and not table.view_text else ()

    def _table(self, node: exp.Table, condition: Condition, scope: Scope[Named]) -> None:
        self._rest(node, ("this", "db", "catalog"), scope)
        if isinstance(node.this, exp.Func):
            self._function(node, scope)
            return
        if not isinstance(node.this, exp.Identifier):
            self._refuse(node, "Hive can have no table of this name")
        if _by_path(node):
            self.session.by_path.append(node.name)
            log.warning("%s is read by its path; if a table has this path, name the table in reads too", node.name)
            return
        if self.session.refers_again() > MOST_REFERENCES:
            self._refuse_more(node)
        for named in self._meanings(node, scope):
            if named is None:
                self._object_read(node, condition)
            else:
                self._once(named, ALWAYS if named.renamed or renamed(node) else condition)

    def _once(self, named: Named, condition: Condition = ALWAYS) -> None:
        """Add the reads of *named*. Do nothing inside its own query, because *named* then refers to itself."""
        if named not in self.session.being_read:
            self.session.being_read.append(named)
            self.read_named(named, condition)
            self.session.being_read.pop()

    def _call(self, function: str) -> bool:
        """Add the reads of the session's function of that name. Return whether the session has one."""
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

    def _meanings(self, node: exp.Table, scope: Scope[Named]) -> tuple[Named | None, ...]:
        """The CTE or this session's views that *node* can mean. None among them is a stored table or view."""
        if not isinstance(node.this, exp.Identifier) or _by_path(node):
            return ()
        parts = tuple(part.name.lower() for part in node.parts)
        if len(parts) == 1 and (cte := scope.get(parts[0])) is not None:
            return (cte,)
        try:
            return self.session.meanings(parts)
        except InvalidRequest as error:
            self._refuse(node, str(error))

    def _function(self, node: exp.Table, scope: Scope[Named]) -> None:
        name = node.this.name if isinstance(node.this, exp.Anonymous) else node.this.sql_name()
        if name.upper() == "IDENTIFIER":
            self._refuse(node, WHICH_NAME, step="")
        if name.upper() not in FUNCTIONS and not self._call(name):
            self._refuse(node, f"cannot tell which tables the table function {name} reads", step=_MAKE_IT)
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
        """:raises InvalidRequest: with the place of *node*, or of the statement if the tree has no place."""
        meta: dict[str, Any] = next((part.meta for part in node.walk() if "start" in part.meta), {})
        start = meta.get("start", self.statement.tokens[0].start if self.statement.tokens else 0)
        raise InvalidRequest(placed(self.statement.text, start, why, step))


def _by_path(node: exp.Table) -> bool:
    """Whether *node* is Spark's ``json.`/path```. A name in Hive can contain a ``/``, so only known formats count."""
    return node.args.get("catalog") is None and node.db.lower() in _FORMATS and "/" in node.name
