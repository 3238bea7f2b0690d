"""The plans of a session of Spark Connect: what one request leaves for the next one."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hivelock.locks.plan import query
from airflow_hivelock.spark.connect_caches import Caches
from airflow_hivelock.spark.connect_plans import ConnectPlans, Request
from airflow_hivelock.spark.holding import NotPlanned

UNKNOWN = "select * from made_elsewhere(1)"


def answer(asked: str) -> list[Any]:
    """The server's answer: it has the tables u, v and w, which have no partitions."""
    if "current_catalog" in asked:
        return [("spark_catalog", "dw")]
    if asked.startswith("DESCRIBE"):
        return [("x", "int"), ("# Detailed Table Information", ""), ("Type", "MANAGED"), ("Provider", "hive")]
    name = asked.rpartition("LIKE ")[2].strip("'")
    return [{"tableName": name, "isTemporary": False}] if name in ("u", "w") else []


class Session:
    def __init__(self) -> None:
        self.plans = ConnectPlans(answer, Caches())

    def run(self, text: str) -> tuple[list[str], list[str]]:
        """What the statement *text* locks SHARED and EXCLUSIVE. It succeeds on the server if it is planned."""
        request = Request((text,), command=True)
        succeeded = False
        try:
            found = self.plans.plan(request)
            succeeded = True
        finally:
            self.plans.ended(request, succeeded=succeeded)
        plan = found[0] if found else None
        return ([*map(str, plan.reads)], [*map(str, plan.writes)]) if plan else ([], [])


@pytest.mark.parametrize(
    "refused",
    [
        f"explain {UNKNOWN}",
        f"begin if true then {UNKNOWN}; end if; end",
        f"begin for r as select * from u do {UNKNOWN}; end for; end",
        f"insert into u {UNKNOWN}",
    ],
)
def test_a_refused_statement_changes_no_later_plan(refused: str) -> None:
    session = Session()
    session.run("create temporary view v as select * from u")
    with pytest.raises(NotPlanned, match="made_elsewhere"):
        session.run(refused)
    session.run("create or replace temporary view v as select * from w")
    assert session.run("insert into u select * from v") == (["dw.w"], ["dw.u"])


def test_a_refused_script_that_runs_under_a_lease_leaves_no_known_view() -> None:
    session = Session()
    session.run("create temporary view v as select * from u")
    request = Request(("begin if true then create or replace temporary view v as select * from w; end if; end",))
    with pytest.raises(NotPlanned, match="a branch"):
        session.plans.plan(request)
    session.plans.ended(request, succeeded=True)
    with pytest.raises(NotPlanned, match="v is not a known table"):
        session.run("insert into u select * from v")


def test_a_view_of_a_refused_cache_that_runs_under_a_lease_is_not_taken_for_a_table() -> None:
    def with_view(asked: str) -> list[Any]:
        return (
            [{"tableName": "w", "namespace": ""}] if asked == "SHOW TABLES IN global_temp" and made else answer(asked)
        )

    made: list[str] = []
    plans = ConnectPlans(with_view, Caches())
    request = Request((f"cache table w as {UNKNOWN}",), command=True)
    with pytest.raises(NotPlanned, match="made_elsewhere"):
        plans.plan(request)
    made.append("w")
    plans.ended(request, succeeded=True)
    with pytest.raises(NotPlanned, match="w is not a known table"):
        plans.plan(Request(("insert into u select * from w",), command=True))


def test_a_word_of_scripts_as_a_name_does_not_open_a_block_for_later_statements() -> None:
    session = Session()
    session.run("begin select begin from u; end")
    session.run("declare name string default 'u'")
    assert session.run("insert into identifier(name) select * from w") == (["dw.w"], ["dw.u"])


def test_a_session_can_run_any_number_of_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MOST_REFERENCES", 5)
    session = Session()
    session.run("create temporary view v as select * from w")
    for _ in range(10):
        assert session.run("insert into u select * from v") == (["dw.w"], ["dw.u"])
    with pytest.raises(NotPlanned, match="refers to more than 5 tables"):
        session.run("insert into u select * from v, v a, v b, v c")


def test_a_statement_that_ends_late_keeps_what_another_thread_has_created() -> None:
    session = Session()
    reads = Request(("select * from u",))  # the rows of a DataFrame, which another thread reads for long
    session.plans.plan(reads)
    session.run("create temporary function f() returns int return (select max(x) from w)")
    session.plans.ended(reads, succeeded=True)
    assert session.run("insert into u select f()") == (["dw.w"], ["dw.u"])


@pytest.mark.parametrize(
    "refused",
    [
        "execute immediate 'insert overwrite direct' || 'ory ''/dw/w'' using csv select * from u'",
        "insert overwrite /* a comment */ directory '/dw/w' using csv select * from u",
        "execute immediate concat('create temporary vi', 'ew f using csv options (path ''/dw/w'')')",
        "create temporary table f using csv options (path '/dw/w')",
        "load data inpath '/dw/w/rows' into table u",
        "select * from u, csv.`/dw/w`",
        "select * from identifier(concat('csv.', '`/dw/w`'))",
        "create temporary view f as select * from orc.`/dw/w`",
    ],
)
def test_a_statement_that_names_files_by_path_is_refused_in_every_spelling(refused: str) -> None:
    session = Session()
    with pytest.raises(NotPlanned, match="names files by path"):
        session.run(refused)
    session.run("declare half string default '/dw/w`'")
    with pytest.raises(NotPlanned, match="names files by path"):
        session.run("execute immediate 'insert into u select * from csv.`' || half")
    assert session.run("load data local inpath '/home/rows' into table u") == ([], ["dw.u"])


def test_a_join_with_using_names_no_files() -> None:
    session = Session()
    session.run("create temporary view v as select * from u join w using (x)")
    assert session.run("insert into t select * from v") == (["dw.u", "dw.w"], ["dw.t"])


def test_a_cache_is_noticed_in_sql_that_is_put_together() -> None:
    plans = ConnectPlans(answer, Caches())
    request = Request(("execute immediate 'cache lazy tab' || 'le c as select * from u'",), command=True)
    plans.plan(request)
    assert request.caches
    request = Request(("execute immediate 'select * from u'",), command=True)
    plans.plan(request)
    assert not request.caches
    request = Request(("execute immediate 'cache tab' || 'le u' || made_elsewhere(1)",), command=True)
    with pytest.raises(NotPlanned):
        plans.plan(request)
    assert request.caches, "it can run under a lease that names its data"
