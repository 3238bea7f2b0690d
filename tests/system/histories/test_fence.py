"""A process is stopped at its work, loses its lock, and goes on: what the token is for, and what it does not do alone.

However well locks are kept, what a process writes may arrive after its lock has gone. Unless the store compares, the
update of the process that held the lock by then is lost.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.locks import connect
from airflow_hivelock.locks.backends.zookeeper.layout import Layout
from tests.support.fleet import Fleet
from tests.system.histories import counting
from tests.system.histories.trace.validate import validate
from tests.system.histories.transactions import transactions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import ZooKeeperServer

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("fence", "loss", "late"),
    [
        ("none", "force released", "written"),
        ("token", "force released", "refused"),
        ("token and epoch", "force released", "refused"),
        ("none", "taken over", "written"),
        ("token", "taken over", "refused"),  # in ZooKeeper; elsewhere a lease keeps its token when it is taken over
        ("token and epoch", "taken over", "refused"),
    ],
)
def test_the_late_write_of_a_process_that_has_lost_its_lock_undoes_an_update_unless_it_is_fenced(
    fence: str, loss: str, late: str, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    url, store = f"zookeeper://{zookeeper.hosts}/{tmp_path.name}?root=/locks-{tmp_path.name}", tmp_path / "counter"
    counting.create(store)
    with Fleet() as fleet:
        counter = partial(fleet.start, "tests.system.histories.counting", url, store, fence)
        first = counter("task", 0)
        assert first.hear() == "read"
        first.stop()
        if loss == "taken over":
            second = counter("task", 1)
        else:
            with connect(url) as manager:
                lease = manager.lease_of("task")
                assert lease
                assert manager.force_release(lease.id, reason="its process does not answer", user="test")
            second = counter("another", 0)
        assert second.hear() == "read"
        answers = [second.ask()]
        first.resume()
        answers.append(first.ask())
        assert answers == ["written", late]
        lost = answers.count("written") - counting.read(store)
        assert lost == (1 if late == "written" else 0)
    trace = validate(transactions([zookeeper]), Layout(f"/{tmp_path.name}", f"/locks-{tmp_path.name}"))
    trace.processes = 2
    print(trace)
    assert not trace.wrong, "\n".join(trace.wrong)
    assert trace.actions["take_over" if loss == "taken over" else "keeper_frees"]
