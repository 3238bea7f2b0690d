"""The statements of ``statements.txt``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_hivelock.locks import Lock, LockMode, LockObject, rules
from airflow_hivelock.locks.plan import Follows, plan_statements
from tests.support.sql.warehouse import DATABASE, Warehouse

Locks = dict[LockObject, LockMode]


@dataclass(frozen=True)
class Case:
    """A statement, its locks, and ``no``, ``refused`` or a reason if real Hive differs.

    :param later: the same for a release and those after it, as pairs; ``same`` if it does not differ any more.
    """

    sql: str
    locks: str
    hive: str = ""
    later: tuple[tuple[str, str], ...] = ()

    def in_hive(self, release: str) -> str:
        """What ``hive`` says, of that release."""
        found = self.hive
        for since, said in self.later:
            if release >= since:
                found = "" if said == "same" else said
        return found

    @property
    def expected(self) -> Locks:
        """The expected locks, parents included."""
        named = [] if self.locks == "nothing" else self.locks.split(") ")
        parsed = [(each[0], LockObject.parse(each[2:].removesuffix(")"))) for each in named]
        return by_object(*([target for mode, target in parsed if mode == wanted] for wanted in "SX"))

    def planned(self, catalog: object = None, locks: Follows = "stricter") -> Locks:
        """The locks of the plan, parents included."""
        found = plan_statements(self.sql, catalog or Warehouse(), database=DATABASE, locks=locks)  # type: ignore[arg-type]
        return by_object(*found)


def by_object(reads: list[LockObject], writes: list[LockObject]) -> Locks:
    return {lock.object: lock.mode for lock in rules.with_parents(reads, writes)}


def less(ours: Locks, theirs: Locks) -> list[Lock]:
    """The locks of *theirs* that *ours* neither contains nor covers. EXCLUSIVE covers everything below its object."""

    def covered(target: LockObject, mode: LockMode) -> bool:
        held = [ours.get(each) for each in (target, *target.parents)]
        return LockMode.EXCLUSIVE in held or (mode is LockMode.SHARED and held[0] is mode)

    return [Lock(target, mode) for target, mode in theirs.items() if not covered(target, mode)]


def _read() -> list[Case]:
    found: list[tuple[str, str, dict[str, str]]] = []
    for line in (Path(__file__).parent / "statements.txt").read_text().splitlines():
        if line.startswith("  hive"):
            release, _, said = line.strip().removeprefix("hive").partition(": ")
            found[-1][2][release.strip()] = said
        elif line.startswith("  "):
            found[-1] = (found[-1][0], line.strip(), {})
        elif line and not line.startswith("#"):
            found.append((line, "", {}))
    return [Case(sql, locks, said.pop("", ""), tuple(said.items())) for sql, locks, said in found]


CASES = _read()
