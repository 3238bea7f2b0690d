"""The condition of a list of tuples, such as ``(dt, hr) IN (('2024-01-01', 4), …)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from airflow_hivelock.locks.plan.condition import INTEGER, Compare, Condition, Literal, Or
from airflow_hivelock.locks.spelling import is_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_hivelock.locks.plan.condition import Partition


class _Form(NamedTuple):
    """What decides whether a literal can be compared to a value. :class:`.Compare` needs the text only if both are alike."""

    kind: str
    integer: bool
    date: bool


@dataclass(frozen=True)
class OneOfTuples(Condition):
    """``(column, …) IN ((literal, …), …)``. Engines skip partitions by it only if all its columns are partition columns.

    A list can have thousands of tuples, and a table thousands of partitions. So :meth:`holds` looks the tuples up in
    sets. :class:`.Compare` decides only on one literal of each form, and on the literals that are like the value.

    :param places: the column at each place of the tuples. None: the comparison at that place is unknown.
    """

    places: tuple[str | None, ...]
    tuples: tuple[tuple[Literal, ...], ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once, because all sources of a query share one long WHERE."""
        return hash((self.places, self.tuples))

    def columns(self) -> frozenset[str]:
        return frozenset(column for column in self.places if column is not None)

    def renamed(self, source: Callable[[str], str | None], widened: bool = False) -> Condition:
        return replace(self, places=tuple(None if column is None else source(column) for column in self.places))

    def holds(self, partition: Partition) -> bool | None:
        if not self.columns() <= partition.values.keys():
            return None
        answers = [self._answers(place, partition) for place in range(len(self.places))]
        known: bool | None = False
        for forms in self._by_forms:
            held = self._found(forms, [each[form] for each, form in zip(answers, forms, strict=True)])
            if held:
                return True
            if held is None:
                known = None
        return known

    def _answers(self, place: int, partition: Partition) -> dict[_Form, dict[Literal, bool | None] | None]:
        """For each form of the literals at *place*: the literals that can equal the value, with True or None for unknown.

        None in place of the literals: the comparison is unknown for all literals of the form.
        """
        column = self.places[place]
        if column is None:
            return dict.fromkeys(self._literals[place])
        key = _key(partition.values[column])
        answers: dict[_Form, dict[Literal, bool | None] | None] = {}
        for form, by_key in self._literals[place].items():
            # All literals that are unlike the value compare the same.
            unlike = next((literals[0] for each, literals in by_key.items() if each != key), None)
            if unlike is not None and _equal(column, unlike, partition) is None:
                answers[form] = None
            else:
                compared = {literal: _equal(column, literal, partition) for literal in by_key.get(key, ())}
                answers[form] = {literal: held for literal, held in compared.items() if held is not False}
        return answers

    def _found(self, forms: tuple[_Form, ...], answers: list[dict[Literal, bool | None] | None]) -> bool | None:
        """Whether a tuple of literals with *forms* equals the values of a partition with *answers*."""
        places = tuple(place for place, each in enumerate(answers) if each is not None)
        possible = [each for each in answers if each is not None]
        listed = self._listed(forms, places)
        # A value can have many spellings: '7', '07', … So choose the shorter way.
        few = prod(len(each) for each in possible) <= len(listed)
        found: bool | None = False
        for literals in product(*possible) if few else listed:
            pairs = list(zip(possible, literals, strict=True))
            if literals in listed and all(literal in each for each, literal in pairs):
                if len(places) == len(forms) and all(each[literal] for each, literal in pairs):
                    return True
                found = None
        return found

    def _listed(self, forms: tuple[_Form, ...], places: tuple[int, ...]) -> frozenset[tuple[Literal, ...]]:
        """The tuples of literals with *forms*, reduced to *places*. Computed once."""
        if (forms, places) not in self._reduced:
            found = (tuple(literals[place] for place in places) for literals in self._by_forms[forms])
            self._reduced[forms, places] = frozenset(found)
        return self._reduced[forms, places]

    @cached_property
    def _by_forms(self) -> Mapping[tuple[_Form, ...], list[tuple[Literal, ...]]]:
        found: dict[tuple[_Form, ...], list[tuple[Literal, ...]]] = {}
        for literals in self.tuples:
            found.setdefault(tuple(map(_form, literals)), []).append(literals)
        return found

    @cached_property
    def _literals(self) -> list[dict[_Form, dict[str, list[Literal]]]]:
        """For each place, its literals by form and by :func:`_key`."""
        found: list[dict[_Form, dict[str, list[Literal]]]] = []
        for place in range(len(self.places)):
            by_form: dict[_Form, dict[str, list[Literal]]] = {}
            for literal in dict.fromkeys(literals[place] for literals in self.tuples):
                by_form.setdefault(_form(literal), {}).setdefault(_key(literal.text), []).append(literal)
            found.append(by_form)
        return found

    @cached_property
    def _reduced(self) -> dict[tuple[tuple[_Form, ...], tuple[int, ...]], frozenset[tuple[Literal, ...]]]:
        return {}


def one_of(tuples: Iterable[tuple[Condition, ...]]) -> Condition:
    """The OR of *tuples*. Each has a :class:`.Compare` with ``=`` at each place, or an unknown condition."""
    found: dict[tuple[str | None, ...], list[tuple[Literal, ...]]] = {}
    for each in tuples:
        places = tuple(part.column if isinstance(part, Compare) else None for part in each)
        literals = tuple(part.literal if isinstance(part, Compare) else _ANY for part in each)
        found.setdefault(places, []).append(literals)
    return Or(tuple(OneOfTuples(places, tuple(literals)) for places, literals in found.items()))


_ANY = Literal("", "computed")


def _form(literal: Literal) -> _Form:
    return _Form(literal.kind, INTEGER.fullmatch(literal.text) is not None, is_date(literal.text))


def _key(text: str) -> str:
    """One text for all spellings of a number, and *text* itself if it is no number."""
    return str(int(text)) if INTEGER.fullmatch(text) else text


def _equal(column: str, literal: Literal, partition: Partition) -> bool | None:
    return Compare(column, "=", literal, widened=True).holds(partition)
