"""The work under a lease: a counter for each object, read and then written, and a row as evidence."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
from sqlalchemy import make_url

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

BUSY_S = 120.0
TABLES = 5

Job = list[tuple[int, bool]]
"""Objects by number, in their order, each with whether it is written."""


def job(chance: random.Random, objects: int) -> Job:
    """One or two objects; three of four are written."""
    chosen = sorted(chance.sample(range(objects), chance.choice((1, 1, 2))))
    return [(number, chance.random() < 0.75) for number in chosen]


def name(number: int) -> str:
    return f"dw.flights_{number % TABLES}/day={number}"


@dataclass(frozen=True)
class Done:
    """One piece of work on one object.

    :param value: what it wrote; of one that only reads, what it read first and at last.
    """

    number: int
    writes: bool
    token: int
    value: int
    last: int


class Ground:
    """A plain connection to the counters, in the database that also holds the leases."""

    def __init__(self, url: str) -> None:
        given = make_url(url)
        self.database = given.get_backend_name()
        self._connection: Any
        match self.database:
            case "postgresql":
                plain = given.set(query={}).render_as_string(hide_password=False)
                self._connection = psycopg.connect(plain, autocommit=True)
            case "mysql":
                where = {"host": given.host, "port": given.port, "user": given.username, "database": given.database}
                self._connection = pymysql.connect(**where, autocommit=True)
                self.run("set session transaction isolation level read committed")
            case _:
                self._connection = sqlite3.connect(given.database or "", timeout=BUSY_S, isolation_level=None)

    def create(self, objects: int) -> None:
        self.run("drop table if exists counter")
        self.run("drop table if exists done")
        self.run("drop table if exists held")
        self.run("create table counter (number bigint primary key, value bigint not null)")
        self.run("create table done (number bigint, writes integer, token bigint, value bigint, last bigint)")
        self.run("create table held (number bigint, writes integer, holder bigint, primary key (holder, number))")
        self.run("create index held_number on held (number)")
        for number in range(objects):
            self.run("insert into counter values (%s, 0)", number)

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("%s", "?") if self.database == "sqlite" else statement, values)
        return list(cursor.fetchall()) if cursor.description else []

    def row_lock(self, *, writes: bool) -> str:
        """The end of a SELECT that locks its row; SQLite locks the file."""
        shared = {"postgresql": "for share", "mysql": "lock in share mode"}
        return "" if self.database == "sqlite" else "for update" if writes else shared[self.database]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.run("begin immediate" if self.database == "sqlite" else "begin")
        yield
        self.run("commit")

    def value(self, number: int, suffix: str = "") -> int:
        return int(self.run(f"select value from counter where number = %s {suffix}", number)[0][0])

    def work(self, job: Job, token: int) -> None:
        """Under a lock of another's: nothing but that keeps two who work on one object apart."""
        found = [self.value(number) for number, _ in job]
        with self.transaction():
            self.put(job, found, token)

    def put(self, job: Job, found: Sequence[int], token: int) -> None:
        for (number, writes), value in zip(job, found, strict=True):
            last = value + 1 if writes else self.value(number)
            if writes:
                self.run("update counter set value = %s where number = %s", last, number)
            self.run(
                "insert into done values (%s, %s, %s, %s, %s)",
                number,
                int(writes),
                token,
                last if writes else value,
                last,
            )

    def hold(self, job: Job, holder: int) -> bool:
        """Say in a row an object that *holder* holds it, and commit; False if another's row conflicts."""
        with self.transaction():
            for number, _ in job:
                self.value(number, self.row_lock(writes=True))
            for number, writes in job:
                if self.run("select 1 from held where number = %s and writes + %s > 0 limit 1", number, int(writes)):
                    return False
            for number, writes in job:
                self.run("insert into held values (%s, %s, %s)", number, int(writes), holder)
        return True

    def let_go(self, holder: int) -> None:
        self.run("delete from held where holder = %s", holder)

    def done(self) -> list[Done]:
        rows = self.run("select number, writes, token, value, last from done")
        return [Done(number, bool(writes), *others) for number, writes, *others in rows]

    def counters(self) -> dict[int, int]:
        return dict(self.run("select number, value from counter"))

    def close(self) -> None:
        self._connection.close()


def broken(ground: Ground, *, fenced: bool = True) -> list[str]:
    """What must not be, in the history that the database tells.

    Taken in the order of the tokens, each writer finds what the last one has written, and a reader finds it twice.
    """
    wrong: list[str] = []
    values = dict.fromkeys(ground.counters(), 0)
    for done in sorted(ground.done(), key=lambda done: (done.token, done.value) if fenced else (done.value, done.last)):
        if done.writes:
            values[done.number] += 1
        if fenced and (done.value, done.last) != (values[done.number],) * 2:
            wrong.append(f"{done}, where the counter stood at {values[done.number]}")
    wrong += [
        f"{name(number)} was written {values[number]} times, and counts {value}"
        for number, value in ground.counters().items()
        if value != values[number]
    ]
    return wrong
