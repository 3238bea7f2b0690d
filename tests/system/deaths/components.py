"""Events that meet Airflow or ZooKeeper themselves, with a task at work and another that waits for its lock."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from airflow_hivelock.locks import StoreUnavailable
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.model import owner_key
from tests.support.patience import until
from tests.system.deaths.invited import before_it_asks
from tests.system.deaths.play import DAY, LATER_DAY, NEXT_DAY, WAIT_S
from tests.system.deaths.row import KEEPER, TASK, UNLOCK, Rows
from tests.system.deaths.steps import deleted, killed, marked, over

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tests.system.deaths.play import Play, Run
    from tests.system.deaths.steps import Step

ROWS = Rows()

OUTAGE_S = 15.0
"""Longer than a session of ZooKeeper's lasts."""

WAITERS = 4

THRESHOLD_S = 12.0
"""After so long without a heartbeat a triggerer here counts as dead."""

FREED_S = 60.0
"""Within what the keeper frees what is over, once the lock store answers."""

DATABASE_OUTAGE_S = 75.0
"""Longer than a task's supervisor bears it."""


def _two(play: Play, dag_id: str = "own") -> tuple[Run, Run]:
    """One at work, and one behind it."""
    first = play.at_work(dag_id)
    second = play.start("own")
    play.await_waiters()
    return first, second


def _in_turn(play: Play, first: Run, before: int = 1) -> None:
    """The first ends, and then the second works."""
    first.open()
    play.writing(before + 1)


@ROWS.of("triggerer killed; one task waits, one is deferred during its work", TASK)
def triggerer_killed(play: Play) -> None:
    first, _ = _two(play, "elsewhere")
    first.reach("deferred")
    _triggerer_restarts(play, first)
    _in_turn(play, first)


@ROWS.of("triggerer killed; a task is invited, and its worker has not asked yet", TASK)
def triggerer_killed_beside_one_invited(play: Play) -> None:
    run = before_it_asks(play)
    _triggerer_restarts(play, run)
    assert play.invited() == [run.owner()]
    run.let_ask()
    play.writing()


@ROWS.of("the triggerer that has invited a task is killed; a second one takes over the waiters behind it", TASK)
def another_triggerer_beside_one_invited(play: Play) -> None:
    run = before_it_asks(play, behind="own")
    behind = play.runs[-1]
    play.stage.af.process("triggerer").kill()
    assert play.invited() == [run.owner()]
    run.let_ask()
    play.writing()
    assert play.owners() == [run.owner()]
    second = play.stage.af.start("triggerer", "second triggerer")
    try:
        run.open()
        behind.open()
        behind.reach("success")
    finally:
        play.stage.af.process("triggerer").restart()
        second.stop()


@ROWS.of("two triggerers hang in turn while tasks wait; Airflow gives the triggers to the second one, and back", TASK)
def triggerers_stall(play: Play) -> None:
    rival = play.hold()
    for _ in range(WAITERS):
        play.start("own")
    play.await_waiters(WAITERS)
    (given_to,), acting = _triggerers(play), _acting(play)
    first, second = play.stage.af.process("triggerer"), play.stage.af.start("triggerer", "other triggerer")
    try:
        with ExitStack() as still:
            with first.standing_still():
                play.until(lambda: _acting(play).isdisjoint(acting), "the second to wait for all of them")
                still.enter_context(second.standing_still())
                time.sleep(THRESHOLD_S)
            play.until(lambda: _triggerers(play) == {given_to}, "the first to get them back")
        play.start("own")
        play.await_waiters(WAITERS + 1)
        play.stage.manager.release(rival)
        for run in play.runs:
            run.open()
        for run in play.runs:
            run.reach("success")
        assert len(play.lives()) == WAITERS + 1
    finally:
        second.stop()


def _triggerers(play: Play) -> set[int | None]:
    """The triggerers that Airflow has given the waiting tasks to."""
    tasks = [play.stage.af.task(run.dag_id, run.run_id, "job") for run in play.runs]
    return play.stage.af.triggerers([task.trigger_id for task in tasks if task.trigger_id])


def _acting(play: Play) -> set[str]:
    """The processes that wait for the runs' locks, as the lock store has them."""
    backend = play.stage.manager.backend
    assert isinstance(backend, ZooKeeperBackend)
    records = (backend.store.read(owner_key(run.owner())) for run in play.runs)
    return {record.process for record in records if record}


# A task with a grant that Airflow cannot start fails at once, and leaves its lease to the force release.
@ROWS.of("API server killed; Airflow ends the tasks without a heartbeat", KEEPER, TASK, "trigger")
def api_server_killed(play: Play) -> None:
    _two(play)
    play.stage.af.process("api-server").kill()
    play.stage.af.process("api-server").restart()


@ROWS.of("scheduler, its workers and their tasks killed; their work still writes", TASK)
def machine_killed(play: Play) -> None:
    first, _ = _two(play)
    play.stage.af.process("scheduler").kill()
    play.stage.af.process("scheduler").restart()
    play.writing(2)
    _in_turn(play, first, 2)


@ROWS.of("ZooKeeper killed and started", TASK)
def zookeeper_killed(play: Play) -> None:
    first, _ = _two(play)
    (zookeeper,) = play.stage.servers
    zookeeper.kill()
    zookeeper.start()
    _in_turn(play, first)


@ROWS.of("ZooKeeper away for longer than a session lasts", TASK)
def zookeeper_away(play: Play) -> None:
    first, _ = _two(play)
    (zookeeper,) = play.stage.servers
    zookeeper.kill()
    time.sleep(OUTAGE_S)
    zookeeper.start()
    _in_turn(play, first)


@contextmanager
def _no_zookeeper(play: Play) -> Iterator[None]:
    """Longer than a session lasts, and than an invitation has left."""
    (zookeeper,) = play.stage.servers
    zookeeper.kill()
    try:
        yield
        time.sleep(OUTAGE_S)
    finally:
        zookeeper.start()


def _let_ask(play: Play, run: Run) -> None:
    run.let_ask()


def _triggerer_restarts(play: Play, run: Run) -> None:
    play.stage.af.process("triggerer").kill()
    play.stage.af.process("triggerer").restart()


def _without_zookeeper(name: str, event: str, *steps: Step, then: Step | None = None) -> None:
    """The *steps* meet an invited task while ZooKeeper is away. What comes *then* gets the locks."""

    def act(play: Play) -> None:
        run = before_it_asks(play)
        with _no_zookeeper(play):
            for step in steps:
                step(play, run)
        if then:
            then(play, run)
        play.writing()

    ROWS.add(name, f"a task is invited; ZooKeeper is away when {event}", TASK, act)


def _next_task(play: Play, run: Run) -> None:
    play.start("own")


_without_zookeeper("zookeeper_away_as_one_invited_asks", "its worker asks", _let_ask)
_without_zookeeper(
    "zookeeper_away_as_one_invited_is_killed",
    "its worker is killed: the next task gets the locks",
    killed,
    over,
    then=_next_task,
)
_without_zookeeper(
    "zookeeper_away_as_the_triggerer_of_one_invited_is_killed",
    "the triggerer is killed",
    _triggerer_restarts,
    then=_let_ask,
)
_without_zookeeper(
    "zookeeper_away_as_one_invited_is_marked_failed",
    "it is marked failed: the next task gets the locks",
    marked("failed"),
    over,
    then=_next_task,
)
_without_zookeeper(
    "zookeeper_away_as_one_invited_is_deleted",
    "its run is deleted: the next task gets the locks",
    deleted,
    then=_next_task,
)


@ROWS.of("a task is invited; ZooKeeper is away when it is cleared", TASK)
def zookeeper_away_as_one_invited_is_cleared(play: Play) -> None:
    run = before_it_asks(play, "own_held_up_again")
    with _no_zookeeper(play):
        run.clear("job")
    run.until(lambda: run.try_number() == 2, "try 2")
    run.let_ask()
    play.writing()
    assert play.owners() == [run.owner()]


@ROWS.of("a task is invited; ZooKeeper is away when the invitation ends and its worker asks; another task waits", TASK)
def zookeeper_away_as_an_invitation_ends(play: Play) -> None:
    first = before_it_asks(play)
    second = play.start("own")
    play.await_waiters()
    with _no_zookeeper(play):
        first.let_ask()
    play.writing()
    for run in (first, second):
        run.open()
    for run in (first, second):
        run.reach("success")


@ROWS.of("marked failed while ZooKeeper is away", KEEPER, TASK)
def marked_failed_without_zookeeper(play: Play) -> None:
    run = play.at_work("own")
    (zookeeper,) = play.stage.servers
    zookeeper.kill()
    run.mark("failed")
    play.await_end_of_work()
    zookeeper.start()


@ROWS.of("the work ends while ZooKeeper is away", KEEPER, TASK)
def success_without_zookeeper(play: Play) -> None:
    run = play.at_work("own")
    (zookeeper,) = play.stage.servers
    zookeeper.kill()
    run.open()
    play.await_end_of_work()
    time.sleep(OUTAGE_S)
    zookeeper.start()


@ROWS.of(
    "the work of five tasks ends while ZooKeeper is away for 75 s; the work of a sixth, killed task still writes",
    KEEPER,
    UNLOCK,
)
def zookeeper_away_as_work_ends(play: Play) -> None:
    _work_ends_without_zookeeper(play, 75.0)


@ROWS.of("the same for three minutes", KEEPER, UNLOCK)
def zookeeper_long_away_as_work_ends(play: Play) -> None:
    _work_ends_without_zookeeper(play, 180.0)


@ROWS.of("scheduler killed, its workers not", TASK)
def scheduler_killed(play: Play) -> None:
    first, _ = _two(play)
    scheduler = play.stage.af.process("scheduler")
    scheduler.kill(scheduler.pid)
    play.stage.af.start("scheduler", "its successor")
    first.until(lambda: first.try_number() == 2 or first.is_over(), "Airflow to notice")
    first.open()


@ROWS.of(
    "Airflow's database hangs; one task works, one waits, and the keeper renews the lease of a deferred one",
    KEEPER,
    TASK,
)
def database_hangs(play: Play) -> None:
    first, _ = _two(play)
    kept = play.start("elsewhere_kept")
    play.writing(1, NEXT_DAY)
    kept.reach("deferred")
    _await_renewal(play, kept)
    with _hung_database(play):
        _await_renewal(play, kept)
    with play.stage.af.reviving():  # who is cut off in a transaction, as was idle for too long, may end of it
        _in_turn(play, first)


@ROWS.of("Airflow's database killed, and started later with the parts of Airflow that have ended", KEEPER, TASK)
def database_killed(play: Play) -> None:
    first, _ = _two(play)
    database = play.stage.af.postgres
    assert database
    database.kill()
    time.sleep(DATABASE_OUTAGE_S)
    database.start()
    with play.stage.af.reviving():
        _in_turn(play, first)


def _work_ends_without_zookeeper(play: Play, outage_s: float) -> None:
    ends = [play.start("own_three"), play.start("chained"), play.start("own_two_days_later")]
    days = ["dt=0", "dt=1", "dt=2", DAY, LATER_DAY]
    for day in days:
        play.writing(1, day)
    killed = play.start("own_next_day")
    play.writing(1, NEXT_DAY)
    killed.kill()
    killed.await_end()
    (zookeeper,) = play.stage.servers
    zookeeper.kill()
    for run in ends:
        run.open()
    for day in days:
        play.await_end_of_work(day)
    time.sleep(outage_s)
    zookeeper.start()
    back = time.monotonic()
    play.until(lambda: _are_free(play, days), "what is over to be freed")
    print(f"ZooKeeper was away for {outage_s:g} s; all was free {time.monotonic() - back:.1f} s after it had started")
    assert time.monotonic() - back < FREED_S
    assert play.owners(NEXT_DAY) == [killed.owner()], "freed under the hands of a writer"
    killed.open()
    play.await_end_of_work(NEXT_DAY)
    ended = time.monotonic()
    play.until(lambda: not play.owners(NEXT_DAY), "what is over to be freed")
    assert time.monotonic() - ended < FREED_S
    print(f"freed {ended - back:.0f} s, and {time.monotonic() - ended:.0f} s")


def _are_free(play: Play, days: list[str]) -> bool:
    try:
        return not any(play.owners(day) for day in days)
    except StoreUnavailable:  # it has only just begun to start
        return False


@contextmanager
def _hung_database(play: Play) -> Iterator[None]:
    database = play.stage.af.postgres
    assert database
    database.suspend()
    try:
        yield
    finally:
        database.resume()


def _await_renewal(play: Play, run: Run) -> None:
    """Without a look into Airflow's database."""

    def expires() -> datetime:
        lease = play.stage.manager.lease_of(run.owner())
        assert lease
        assert lease.expires
        return lease.expires

    before = expires()
    until(lambda: expires() > before, "the keeper to renew", WAIT_S, pause_s=1)
