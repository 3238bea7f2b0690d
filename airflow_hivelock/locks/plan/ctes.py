"""The CTEs that a query can name: those before it in its WITH, and those of each WITH around it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Generic, TypeVar

from sqlglot import exp

Cte = TypeVar("Cte")


class Scope(Generic[Cte]):
    """The CTEs that one query can name. A name that is used twice means the last CTE before the query.

    The scopes of all CTEs of one WITH share a table of names, and each has only a number of its own. With a copy for each
    CTE, the memory would grow with the square of their number.

    :param outer: the scope around the WITH. None outside any WITH.
    """

    def __init__(self, outer: Scope[Cte] | None = None) -> None:
        self._outer = outer
        self._ctes: dict[str, list[tuple[int, Cte]]] = {}  # by name, with the number of CTEs before it
        self._count = 0

    def get(self, name: str) -> Cte | None:
        """The CTE of that name, in lower case. None if there is none."""
        scope: Scope[Cte] | None = self
        while scope is not None:
            found = scope._ctes.get(name, [])
            before = bisect_left(found, scope._count, key=lambda each: each[0])
            if before:
                return found[before - 1][1]
            scope = scope._outer
        return None

    def plus(self, name: str, cte: Cte) -> Scope[Cte]:
        """This scope and one more CTE of the same WITH. Only the last scope of a WITH can have more."""
        found = self._ctes.setdefault(name, [])
        found.append((self._count, cte))
        longer = Scope(self._outer)
        longer._ctes, longer._count = self._ctes, self._count + 1
        return longer


def references(node: exp.Expr) -> Counter[str]:
    """By unqualified name, the number of references to a table, view or CTE."""
    return Counter(table.name.lower() for table in node.find_all(exp.Table) if not table.db)
