"""Two and three jobs that publish one partition, stopped and continued at every step: the last word is the newest token's."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from airflow_hivelock.locks import InvalidRequest, LockLost, StoreUnavailable
from airflow_hivelock.spark.publication import Generation, Publication, Relocation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

DEFAULT = "dt=1"


@dataclass
class Warehouse:
    """A metastore and a file system; each call on them is a step.

    :param compares: whether it refuses to alter what has been altered since it was read.
    :param tokens_min: the smallest token that is current.
    """

    compares: bool
    location: str | None = DEFAULT
    version: int = 0
    tokens_min: int = 0
    directories: set[str] = field(default_factory=lambda: {DEFAULT})
    marks: set[str] = field(default_factory=set)


@dataclass
class Partition:
    """A Place, as one of the jobs sees it. Control goes to the scheduler before each step."""

    warehouse: Warehouse
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def stage(self, token: int) -> str:
        return f"{token}-{next(self.numbers)}"

    def generations(self) -> list[Generation]:
        step()
        named = [path for path in self.warehouse.directories if path != DEFAULT]
        return [Generation(path, int(path.partition("-")[0])) for path in named]

    def published(self, generation: Generation) -> bool:
        step()
        return generation.path in self.warehouse.marks

    def mark(self, path: str) -> None:
        step()
        self.warehouse.directories.add(path)
        self.warehouse.marks.add(path)

    def change(self, path: str) -> Relocation:
        step()
        location, version = self.warehouse.location, self.warehouse.version

        def make() -> bool:
            step()
            if self.warehouse.compares and self.warehouse.version != version:
                return False
            self.warehouse.location = path
            self.warehouse.version += 1
            return True

        return Relocation(location, make)

    def discard(self, paths: Collection[str]) -> None:
        step()
        self.warehouse.directories -= set(paths)
        self.warehouse.marks -= set(paths)

    def former(self, live: str) -> list[str]:
        return [] if live == DEFAULT else [DEFAULT]

    def close(self) -> None:
        pass


def step() -> None:
    """Let the scheduler choose who goes on; nothing where there is none."""
    if (scheduler := getcurrent().parent) is not None:
        scheduler.switch()


def job(warehouse: Warehouse, token: int) -> str:
    """Take over, stage, publish: ``published``, or ``refused``."""

    def check() -> None:
        step()
        if token < warehouse.tokens_min:
            raise LockLost("taken over")

    publication = Publication(Partition(warehouse), token, check)
    step()
    warehouse.tokens_min = max(warehouse.tokens_min, token)
    try:
        check()
        path = publication.begin()
        step()
        warehouse.directories.add(path)
        publication.publish()
    except LockLost:
        return "refused"
    finally:
        publication.end()
    return "published"


def run(
    warehouse: Warehouse, tokens: Collection[int], turns: Iterable[tuple[int, int]], killed: Collection[int] = ()
) -> dict[int, str]:
    """What became of each token's job: they go on by *turns*, a token and how many steps, and then to their ends."""
    outcomes: dict[int, str] = {}
    jobs = {token: greenlet(partial(job, warehouse, token)) for token in tokens}
    for token, steps in [*turns, *((token, 1_000) for token in tokens if token not in killed)]:
        for _ in range(steps):
            if jobs[token].dead:
                break
            outcome = jobs[token].switch()
            if jobs[token].dead:
                outcomes[token] = outcome
    return outcomes


def judge(warehouse: Warehouse, outcomes: dict[int, str], schedule: object) -> None:
    newest = max(token for token, outcome in outcomes.items() if outcome == "published")
    told = f"{schedule}: {outcomes}, {warehouse}"
    assert str(warehouse.location).startswith(f"{newest}-"), f"an older output stands: {told}"
    assert warehouse.location in warehouse.directories, f"it lies nowhere: {told}"
    assert outcomes[max(outcomes)] == "published", f"the newest was refused: {told}"


@pytest.mark.parametrize("compares", [True, False], ids=["metastore compares", "metastore does not"])
def test_an_older_output_never_stands_wherever_two_jobs_are_stopped(compares: bool) -> None:
    # One is stopped twice, the other once; a job takes fewer than 20 steps.
    again = (1, 2, 3, 5, 8)
    for first, *turns in itertools.product([(1, 2), (2, 1)], range(20), range(20), again):
        schedule = [*zip((*first, first[0]), turns, strict=True)]
        warehouse = Warehouse(compares)
        judge(warehouse, run(warehouse, first[::-1], schedule), schedule)


@pytest.mark.parametrize("compares", [True, False], ids=["metastore compares", "metastore does not"])
def test_nor_where_three_are_stopped_at_random(compares: bool) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    for _ in range(1_000):
        schedule = [(chance.randint(1, 3), chance.randint(1, 12)) for _ in range(12)]
        warehouse = Warehouse(compares)
        judge(warehouse, run(warehouse, chance.sample([1, 2, 3], 3), schedule), f"seed {seed}: {schedule}")


@pytest.fixture
def publishes() -> Callable[[Warehouse, int], None]:
    def publish(warehouse: Warehouse, token: int) -> None:
        assert run(warehouse, [token], []) == {token: "published"}

    return publish


def test_what_was_replaced_stays_until_the_next_time(publishes: Callable[[Warehouse, int], None]) -> None:
    warehouse = Warehouse(compares=False, directories={DEFAULT, "0-left by a dead try", "9-staged by a later one"})
    publishes(warehouse, 1)
    assert warehouse.directories == {DEFAULT, "1-0", "9-staged by a later one"}
    publishes(warehouse, 2)
    assert warehouse.directories == {"1-0", "2-0", "9-staged by a later one"}


def test_what_was_refused_leaves_nothing_behind(publishes: Callable[[Warehouse, int], None]) -> None:
    warehouse = Warehouse(compares=False)
    publishes(warehouse, 2)
    assert run(warehouse, [1], []) == {1: "refused"}
    warehouse.tokens_min = 0  # a lock store that was created again
    late = Publication(Partition(warehouse), 1, lambda: None)
    with pytest.raises(LockLost, match="token 2 has published"):
        late.begin()
    assert warehouse.directories == {DEFAULT, "2-0"}


def test_nothing_is_touched_after_a_later_one_has_published() -> None:
    warehouse = Warehouse(compares=False)
    late = Publication(Partition(warehouse), 1, lambda: None)
    warehouse.directories.add(late.begin())
    assert run(warehouse, [2], []) == {2: "published"}
    warehouse.directories.add("1-0")
    with pytest.raises(LockLost, match="token 2 has published"):
        late.publish()
    assert (warehouse.location, warehouse.version) == ("2-0", 1)


def test_who_has_lost_the_lease_does_not_take_the_location_back() -> None:
    marked = steps_until(1, lambda warehouse: bool(warehouse.marks))
    switched = steps_until(2, lambda warehouse: warehouse.location != DEFAULT)
    warehouse = Warehouse(compares=False)
    assert run(warehouse, [1, 2], [(1, marked), (2, switched)], killed=[2]) == {1: "refused"}
    assert warehouse.location == "2-0"


def steps_until(token: int, done: Callable[[Warehouse], bool]) -> int:
    """How many steps that token's job takes, alone, until *done*."""
    for steps in itertools.count():
        run(warehouse := Warehouse(compares=False), [token], [(token, steps)], killed=[token])
        if done(warehouse):
            return steps
    raise AssertionError("unreachable")


def test_a_body_that_wrote_nothing_publishes_nothing() -> None:
    warehouse = Warehouse(compares=False)
    publication = Publication(Partition(warehouse), 1, lambda: None)
    publication.begin()
    with pytest.raises(InvalidRequest, match="has no output"):
        publication.publish()
    assert warehouse.location == DEFAULT


def test_it_gives_up_where_others_alter_the_table_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(compares=True)
    place = Partition(warehouse)
    monkeypatch.setattr(place, "change", lambda path: Relocation(DEFAULT, lambda: False))
    publication = Publication(place, 1, lambda: None)
    warehouse.directories.add(publication.begin())
    with pytest.raises(StoreUnavailable, match="is not published"):
        publication.publish()
