"""The guide on alerts in a real Airflow, where an hour is some seconds: who gets which mail about a task that waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.system.levers.conftest import PATIENCE_S, owner
from tests.system.levers.stores import AN_HOUR_S

if TYPE_CHECKING:
    from tests.system.levers.conftest import Store
    from tests.system.levers.mailbox import Mailbox

LATE = "flights_daily is late"
WAITS = "A task has waited for a Hive lock for an hour"
GAVE_UP = "flights_hourly failed"


def test_mails_tell_of_a_task_that_waits_for_an_hour(stores: dict[str, Store], mailbox: Mailbox) -> None:
    store = stores["sales"]
    airflow = store.airflow
    lease = store.manager.acquire(owner=owner("sales_compaction", "week-9"), writes=["watched"])
    for dag in ("flights_daily", "flights_hourly", "hive_lock_waits"):
        airflow.unpause(dag, PATIENCE_S)
    day = datetime(2013, 1, 15, tzinfo=UTC)
    run, hourly = (airflow.trigger(dag, day) for dag in ("flights_daily", "flights_hourly"))
    daily = owner("flights_daily", run).replace("/load/", "/delays/")
    store.until(lambda: daily in {waiter.owner for waiter in store.manager.waiters("watched")}, "the task to wait")

    store.until(lambda: mailbox.with_subject(LATE), "the deadline's mail")
    assert airflow.task("flights_daily", run, "delays").state == "deferred", "the run continues"

    store.until(lambda: mailbox.with_subject(GAVE_UP), "the mail of the task that gave up")
    # Airflow sends the mail before it stores the state.
    store.until(lambda: airflow.task("flights_hourly", hourly, "delays").state == "failed", "the task to fail")
    assert "sales_compaction" in airflow.task_log("flights_hourly", hourly, "delays")

    [waiter] = [waiter for waiter in store.manager.waiters("watched") if waiter.owner == daily]
    store.until(lambda: (store.manager.now() - waiter.since).total_seconds() > AN_HOUR_S, "an hour")
    airflow.trigger("hive_lock_waits")
    store.until(lambda: any(daily in text for text in mailbox.with_subject(WAITS)), "the mail about who waits")
    assert any(f"{lease.owner} holds watched" in text for text in mailbox.with_subject(WAITS))
    store.manager.release(lease)
