"""What users type: names, SQL, lock statements."""

from __future__ import annotations

import random
import re
from contextlib import suppress

from hypothesis import strategies as st

from airflow_hivelock.locks import HiveLockError, LockManager, LockObject
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.model.object import MAX_OBJECTS
from airflow_hivelock.locks.plan import plan_statements
from airflow_hivelock.locks.statements.session import StatementSession
from tests.fuzz.target import ODD_TEXT, Target, encoded, text_of
from tests.support.sql.hostile import TOKENS, statements
from tests.support.sql.warehouse import PARTITIONS, Warehouse

_LISTED = [LockObject.parse(name) for name in PARTITIONS]
_EXISTING = {str(each) for target in _LISTED for each in (target, *target.parents)}
STORABLE = re.compile(r"(?:/[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]+)+")


def name(data: bytes) -> None:
    """A name is refused, or each of its objects can be written, read back and stored as one path."""
    try:
        targets = LockObject.parse_all(text_of(data))
    except HiveLockError:
        return
    assert 1 <= len(targets) <= MAX_OBJECTS
    for target in targets[:50]:
        assert LockObject.parse(str(target)) == target
        path = Layout().object(target)
        assert STORABLE.fullmatch(path), path
        assert not {".", ".."} & set(path.split("/")), path
        assert path.startswith(f"/hive_zookeeper_namespace/{target.database}")
        assert path.count("/") == 1 + len(target.path)
        assert target.parents[::-1] == tuple(_up(target))


def _up(target: LockObject) -> list[LockObject]:
    return [target.parent, *_up(target.parent)] if target.parent else []


def plan(data: bytes) -> None:
    """SQL is refused, or locks what it names and nothing else."""
    sql = text_of(data)
    for catalog in (None, Warehouse()):
        with suppress(HiveLockError):
            reads, writes = plan_statements(sql, catalog, database="dw")
            named = sql.lower() + " all_t t u"  # a view names what it reads
            for target in (*reads, *writes):
                assert not target.table or target.table in named, f"{target} for {sql!r}"


def statement(data: bytes) -> None:
    """Lock statements are refused, or executed for their user. Another user's lease stays held unless force was used."""
    sql = text_of(data)
    manager = LockManager(MemoryBackend())
    other = manager.acquire(owner="here/dag/run/task/-1", writes=["dw.t/dt=1"])
    session = StatementSession(manager, user="ann", database="dw", catalog=Warehouse(), lease_s=60, reason="fuzz")
    forced = "force" in sql.lower()
    with suppress(HiveLockError):
        for result in session.run(sql):
            assert isinstance(result.records(), list)
            encoded(result.text or "")
    assert forced or manager.find(other.id) is not None, "freed without force"
    assert {entry.lease_id for entry in manager.audit()} <= {other.id} | {
        lease for entry in manager.audit() for lease in [entry.lease_id]
    }
    assert manager.find(other.id) is not None or manager.audit(), "freed by force, and not on record"
    assert not manager.waiters(), "a place in the queue was left behind"


_PIECES = (
    "dw",
    "dw.t",
    "dw.t/dt=",
    "/hr=",
    "..",
    "2013-01-01",
    "2013-02-29",
    "00",
    "7",
    "%2E",
    "%",
    "=",
    "/",
    "x",
    " ",
)
_NAMES = st.lists(st.sampled_from(_PIECES) | ODD_TEXT, max_size=8).map("".join)
_WORDS = """
show locks lock unlock table database schema partition extended shared exclusive lease drop force explain use * ; ( ) , =
'1' "a" `t` dw dw.t t u h dt hr memory-1 '' 'x-SHARED-1' 5 05 -- /* */ date select insert into from where
"""


@st.composite
def _soup(draw: st.DrawFn, words: tuple[str, ...]) -> str:
    return " ".join(draw(st.lists(st.sampled_from(words) | ODD_TEXT, max_size=12)))


_SHAPED = (
    "show locks {0} extended",
    "show locks {0} partition (dt={1})",
    "lock table {0} exclusive; unlock table {0}; show locks",
    "lock table {0} partition (dt={1}, hr={1}) shared; show lease *",
    "drop force lease {0}",
    "drop force lease {1}",
    "use {0}; explain locks select * from {0} where dt = {1}",
)
_STATEMENTS = st.builds(
    lambda shape, name, value: shape.format(name, value),
    st.sampled_from(_SHAPED),
    st.sampled_from(["t", "dw.t", "`t`", "`../x`", "database dw", "u"]) | ODD_TEXT,
    st.sampled_from(["'1'", "1", "'memory-1'", "'x-SHARED-1'", r"'\ud800'", "'..'"]) | ODD_TEXT,
)
_QUERIES = st.integers(0, 2**32 - 1).map(lambda seed: next(iter(statements(seed, 1))))


@st.composite
def _repeated(draw: st.DrawFn) -> str:
    """The same few words over and over: what is quadratic shows."""
    dice = random.Random(draw(st.integers(0, 2**32 - 1)))
    unit = " ".join(dice.choices(TOKENS, k=dice.randint(1, 6))) + " "
    head, tail = (" ".join(dice.choices(TOKENS, k=dice.randint(0, 6))) for _ in range(2))
    return f"{head} {unit * (9_000 // len(unit.encode('utf-8', 'replace')))} {tail}"


TARGETS = (
    Target("name", name, _NAMES.map(encoded)),
    Target("plan", plan, st.one_of(_QUERIES, _QUERIES, _QUERIES, _repeated()).map(encoded)),
    Target("statement", statement, (_STATEMENTS | _soup((*_WORDS.split(), " "))).map(encoded)),
)
