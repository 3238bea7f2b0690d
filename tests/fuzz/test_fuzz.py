"""Hostile input, for a few seconds; ``make fuzz`` does it for longer. FUZZ_SEED repeats a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from airflow_hivelock.locks.backends.zookeeper.client import Commit
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from airflow_hivelock.locks.backends.zookeeper.session import KazooSession
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS
from tests.fuzz.znodes import LATE, Stage, place

if TYPE_CHECKING:
    from tests.support.servers import ZooKeeperServer

KEPT = sorted(f"{path.parent.name}/{path.name}" for path in CORPUS.glob("*/*"))
SEED = int(os.environ.get("FUZZ_SEED", 20130115))
"""The same each time: what is new to find, ``make fuzz`` finds, and not whoever changes something else."""
EXAMPLES = {"plan": 10, "znode": 15, "trigger": 10, "page": 10, "row": 15}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Airflow's and Starlette's own


@pytest.mark.parametrize("kept", KEPT)
def test_what_is_kept_in_the_corpus_breaks_nothing(kept: str) -> None:
    TARGETS[kept.split("/")[0]].run((CORPUS / kept).read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_a_stranger_sends_is_answered_or_refused(name: str) -> None:
    print(f"FUZZ_SEED={SEED}")
    target = TARGETS[name]
    options = settings(
        max_examples=EXAMPLES.get(name, 50),
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    fuzz: Any = seed(SEED)(options(given(target.inputs)(target.run)))  # type: ignore[no-untyped-call]
    fuzz()


def test_every_target_has_a_corpus_and_the_corpus_has_no_other() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.integration
def test_a_real_zookeeper_full_of_odd_nodes_shows_all_that_is_well(zookeeper: ZooKeeperServer) -> None:
    """All of the corpus at once, and more, that only a real one can hold: no data at all, a megabyte, a crowd."""
    layout = Layout("/hive-fuzz", "/hivelock-fuzz")
    sessions: list[KazooSession] = []

    def connect() -> KazooSession:
        sessions.append(KazooSession(zookeeper.hosts))
        return sessions[-1]

    try:
        stage = Stage(connect, layout)
        for path in sorted((CORPUS / "znode").glob("*")):
            place(stage, path.read_bytes())
        below = f"{layout.namespace}/dw/crowd"
        assert stage.write(f"{below}/LOCK-SHARED-0000000007", b"x:" * 500_000)
        # As Java's clients make them: no data, which is not empty data.
        for bare in (f"{below}/p=1/LOCK-SHARED-0000000008", f"{layout.records}/0123456789abcdef"):
            sessions[0]._zk.create(bare, None, makepath=True)
            assert sessions[0]._zk.get(bare)[0] is None
        for start in range(0, 3_000, 1_000):
            stage.client.submit(
                Commit(
                    tuple(
                        make
                        for number in range(start, start + 1_000)
                        for make in stage.creates(f"{below}/n={number}", f"{layout.records}/odd {number}")
                    )
                )
            )
        stage.look()
        stage.touch(LATE)
        shown = {str(holder.object) for holder in stage.manager.show()}
        assert {"dw.crowd", "dw.crowd/p=1", "dw.u/p=a%2Fb"} <= shown, "what is odd is shown as far as it can be read"
    finally:
        for session in sessions:
            session.close()
