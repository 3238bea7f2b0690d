"""The command line over the memory backend: what it prints, and the exit codes that scripts live by."""

from __future__ import annotations

import io
import itertools
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from airflow_hivelock import __version__
from airflow_hivelock.cli.command import get_cli_commands, main
from airflow_hivelock.get_provider_info import get_provider_info
from airflow_hivelock.locks import LockManager, StoreUnavailable, connect, pending, plan, rules
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.locks.statements.statement import SYNTAX
from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_S = 30.0
_numbers = itertools.count()


class Run(Protocol):
    """``hivelock`` with these arguments: its exit code, standard output and standard error."""

    def __call__(self, *args: str) -> tuple[int, str, str]: ...


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A separate lock store, named to ``hivelock`` in the environment."""
    url = f"memory://cli-{next(_numbers)}"
    monkeypatch.setenv("AIRFLOW_HIVELOCK_URL", url)
    return url


@pytest.fixture
def manager(url: str) -> LockManager:
    return connect(url)


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: str) -> tuple[int, str, str]:
        try:
            code = main(["--user", "ann", *args])
        except SystemExit as end:  # argparse's own
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


def test_locks_are_taken_shown_and_freed(run: Run, manager: LockManager) -> None:
    assert run("-e", "lock table dw.t exclusive") == (0, "", "")
    assert run("-e", "SHOW LOCKS dw.t") == (0, "dw@t\tEXCLUSIVE\n", "")
    assert run("--database", "dw", "-e", "unlock table t") == (0, "", "")
    assert not manager.show()


def test_explain_locks_is_told_of_tables_and_whose_table_of_commands_to_follow(run: Run) -> None:
    code, out, err = run("-e", "explain locks select * from dw.t")
    assert (code, "dw.t -> EXCLUSIVE" in out) == (0, True)
    assert "--partition-columns \"{'dw.t': ['dt']}\"" in err
    assert "--unpartitioned dw.t if it has none" in err
    code, out, err = run("--unpartitioned", "dw.t", "--unpartitioned", "dw.u", "-e", "explain locks select * from dw.t")
    assert (code, "dw.t -> SHARED" in out, err) == (0, True, "")
    columns = ("--partition-columns", "{'dw.t': ['dt']}")
    code, out, err = run(*columns, "-e", "explain locks select * from dw.t where dt = '2013-01-01'")
    assert (out.split("\n")[2:4], err) == (["dw.t -> SHARED", "dw.t.dt=2013-01-01 -> SHARED"], "")
    for follows in plan.FOLLOWS:
        code, out, _ = run("--locks", follows, "--output", "json", "-e", "explain locks drop table dw.t")
        assert (code, json.loads(out)[-1]["follows"]) == (0, follows)
    assert run("--locks", "both", "-e", "show locks")[0] == 2


def test_no_more_leases_of_a_group_are_taken_than_it_is_said(run: Run, manager: LockManager) -> None:
    limit = ("--lease-group", "rerun", "--max-leases", "1")
    assert run(*limit, "-e", "lock table dw.a exclusive") == (0, "", "")
    code, out, err = run(*limit, "-e", "lock table dw.b exclusive")
    assert (code, out) == (75, "")
    assert "holds a lease of 'rerun'" in err
    assert run("-e", "lock table dw.b exclusive") == (0, "", "")
    assert run(*limit[:2], "-e", "lock table dw.c exclusive") == (0, "", ""), "without a limit of its own"
    assert run(*limit[2:], "-e", "lock table dw.c exclusive")[0] == 2
    code, _, err = run(*limit[:3], "0", "-e", "lock table dw.c exclusive")
    assert code == 2
    assert "--max-leases=0" in err
    code, _, err = run(*limit[:2], "--weight", "0", "-e", "lock table dw.c exclusive")
    assert (code, "--weight=0" in err) == (2, True)


def test_the_limit_of_a_group_is_set_listed_and_dropped(run: Run, manager: LockManager) -> None:
    comment = "as many as the cluster runs"
    assert run("group", "set", "spark-prod", "--leases", "2", "--comment", comment, "--user", "ann")[0] == 0
    counted = ("--lease-group", "spark-prod", "--weight", "2", "--user", "bob")
    assert run(*counted, "-e", "lock table dw.a exclusive") == (0, "", "")
    code, _, err = run(*counted[:2], "-e", "lock table dw.b exclusive")
    assert (code, "holds a lease of 'spark-prod'" in err) == (75, True)
    (rows,) = map(json.loads, run("--output", "json", "group", "list")[1].splitlines())
    owner = next(holder.owner for holder in manager.show("dw.a"))
    assert rows == [
        {
            **{"group": "spark-prod", "leases": 2, "weight": 1, "taken": 2, "waiting": 0, "comment": comment},
            **{"holders": f"{owner} (2)", "waiters": ""},
        }
    ]
    code, _, err = run("--lease-group", "spark-prod", "--weight", "3", "-e", "lock table dw.b exclusive")
    assert (code, "weighs 3, but the limit of its group 'spark-prod' is 2" in err) == (2, True)
    assert run("group", "drop", "spark-prod", "--reason", "no longer shared")[0] == 0
    assert run("--lease-group", "spark-prod", "-e", "lock table dw.b exclusive") == (0, "", "")
    code, _, err = run("group", "drop", "spark-prod")
    assert (code, "has no limit in the lock store. SHOW GROUPS" in err) == (1, True)
    assert next(entry.user.partition(" ")[0] for entry in manager.audit()) == "ann"
    assert manager.audit()[-1].reason.endswith(". no longer shared")


@pytest.mark.parametrize(
    "args", [("set",), ("set", "g"), ("set", "g", "h", "--leases", "2"), ("drop",), ("list", "g"), ("show",)]
)
def test_a_malformed_group_command_changes_nothing(run: Run, manager: LockManager, args: tuple[str, ...]) -> None:
    code, out, err = run("group", *args)
    assert (code, out, "group set NAME --leases N" in err) == (2, "", True)
    assert (list(manager.groups()), list(manager.audit())) == ([], [])


def test_the_more_urgent_goes_before_those_that_wait(run: Run, manager: LockManager) -> None:
    manager.acquire(owner="holder", writes=["dw.a"])
    waits = manager.begin(rules.request("waits", writes=["dw.a", "dw.b"]), lambda: None)
    waits.poll()
    assert run("-e", "lock table dw.b exclusive")[0] == 75
    assert run("--priority", "2", "-e", "lock table dw.b exclusive") == (0, "", "")
    waits.withdraw()


def test_the_columns_of_tables_are_declared_with_an_option(run: Run, manager: LockManager) -> None:
    declared = ("--partition-columns", "{'dw.t': ['d date', 'n string']}")
    assert run(*declared, "-e", "lock table dw.t partition (n='07', d='2024-2-9') exclusive") == (0, "", "")
    assert manager.show("dw.t/d=2024-02-09/n=07")


@pytest.mark.parametrize(
    ("code", "args", "said"),
    [
        (1, ("-e", "unlock table dw.free"), "Table dw.free is not locked"),
        (1, ("-e", "unlock table dw.t"), "DROP FORCE LEASE"),
        (1, ("--reason", "why", "-e", "drop force lease none-1"), "no lease none-1 is held"),
        (2, ("-e", "lock table"), "a name"),
        (2, ("-e", "drop force lease *"), "needs a reason (--reason)"),
        (2, ("--force", "-e", "unlock table dw.t"), "needs a reason (--reason)"),
        (2, ("--reason", "\a", "-e", "drop force lease dw.t"), "a reason (--reason) and a user (--user)"),
        (2, ("--lease", "0.5", "-e", "lock table dw.u shared"), "--lease=0.5 of cli:ann:"),
        (2, ("--url", "oracle://x", "-e", "show locks"), "is not a lock store"),
        (2, ("-f", "/no/such/file"), "/no/such/file cannot be read"),
        (
            2,
            ("-e", "lock table dw.u partition (d='2024-2-9') shared"),
            """--partition-columns "{'dw.u': ['d string']}" uses the value as it is written""",
        ),
        (
            *(2, ("--partition-columns", "dw.u d", "-e", "show locks")),
            """'dw.u d' is not a dict. Write "{'dw.hourly': ['dt date', 'hr string']}\"""",
        ),
        (2, ("--partition-columns", "{1: ['d']}", "-e", "show locks"), "1 is not the name of a lock object"),
        (2, ("--partition-columns", "{'dw.u': 'd'}", "-e", "show locks"), "must be a list of columns"),
        (
            *(2, ("--unpartitioned", "dw.u", "--partition-columns", "{'dw.u': ['d']}", "-e", "show locks")),
            "dw.u is declared twice",
        ),
        (2, ("-e", "show locks", "capabilities"), "one of -e, -f, capabilities, check, host-gone or group"),
        (
            2,
            ("--timeout", "nan", "-e", "show locks"),
            "--timeout: 'nan' is not a time. Write seconds, as in 600, or 90s, 10m, 2h",
        ),
        (2, ("--timeout", "1e300", "-e", "show locks"), "'1e300' is not a time"),
        (2, ("--timeout", "10 fortnights", "-e", "show locks"), "'10 fortnights' is not a time"),
        (2, ("--timeout", "400d", "-e", "show locks"), "'400d' is longer than a year"),
        (2, ("-e", ""), "there is no statement in -e"),
        (2, ("-e", " ; -- nothing"), "there is no statement in -e"),
        (2, ("-f", "/dev/null"), "there is no statement in /dev/null"),
        (1, ("-e", "drop lease 123"), "no lease 123 is held"),
        (2, ("--output", "xml"), "invalid choice: 'xml'"),
        (75, ("-e", "lock table dw.t shared"), "job holds dw.t EXCLUSIVE"),
        (75, ("--timeout", "0.01", "-e", "lock table dw.t shared"), "within 0.01 s: job holds"),
        (75, ("-e", "lock table dw.t shared"), "Wait longer (--timeout)"),
    ],
)
def test_a_failure_has_its_exit_code_and_says_why(
    run: Run, manager: LockManager, code: int, args: tuple[str, ...], said: str
) -> None:
    manager.acquire(owner="job", writes=["dw.t"])
    got, out, err = run(*args)
    assert (got, out) == (code, "")
    assert said in err
    assert len(manager.leases()) == 1
    assert not manager.waiters()


@pytest.mark.parametrize("text", ["90s", "1.5m", "90", "0.025h"])
def test_a_time_is_written_as_people_write_it(run: Run, manager: LockManager, text: str) -> None:
    assert run("--timeout", text, "--lease", text, "-e", "lock table dw.t exclusive")[0] == 0
    (lease,) = manager.leases()
    assert lease.lease_s == 90


def test_nothing_on_standard_input_is_no_statement(
    run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    code, _, err = run()
    assert (code, "there is no statement in standard input" in err) == (2, True)


def test_it_says_which_version_it_is(run: Run) -> None:
    assert run("--version") == (0, f"hivelock {__version__}\n", "")


def test_a_second_lock_by_the_same_user_says_that_it_waits_for_itself(run: Run, manager: LockManager) -> None:
    assert run("-e", "lock table dw.t partition (dt='1') exclusive")[0] == 0
    (lease,) = manager.leases()
    own = f"ann holds it already, with lease {lease.id}: UNLOCK TABLE dw.t PARTITION (dt='1') frees it"
    code, _, err = run("-e", "lock table dw.t exclusive")
    assert (code, own in err) == (75, True), err
    code, _, err = run("--timeout", "0.05", "-e", "lock table dw.t exclusive")
    waits, refused = err.splitlines()
    assert (code, own in waits, "waits for your own lock" in waits) == (75, True, True), err
    assert own in refused
    manager.release(lease)
    manager.acquire(owner="job", writes=["dw.t"])
    assert "holds it already" not in run("--timeout", "0.05", "-e", "lock table dw.t exclusive")[2]


def test_an_outage_is_told_in_one_line(tmp_path: Path) -> None:
    """Without a configured logging, Python would print kazoo's own log lines before it."""
    command = [sys.executable, "-c", "from airflow_hivelock.cli.command import main; raise SystemExit(main())"]
    given = ["--url", "zookeeper://127.0.0.1:1/hive?timeout_s=2", "-e", "SHOW LOCKS"]
    ended = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, line.startswith("hivelock: ZooKeeper at 127.0.0.1:1 did not answer")) == (1, True)


def test_without_a_lock_store_it_says_how_to_name_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_HIVELOCK_URL")
    code, _, err = run("-e", "show locks")
    assert code == 2
    assert "--url, or set AIRFLOW_HIVELOCK_URL" in err


def test_a_hive_site_says_what_the_options_do_not(run: Run, manager: LockManager, tmp_path: Path, url: str) -> None:
    file = tmp_path / "hive-site.xml"
    properties = {"hive.support.concurrency": "false", "hive.lock.numretries": "1", "hive.unlock.numretries": "3"}
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in properties.items()
    )
    file.write_text(f"<configuration>\n{rows}</configuration>")
    site = ("--hive-site", str(file), "--url", url)
    nothing = f"Hive takes no locks, and waits for none: hive.support.concurrency is false in {file}"
    code, out, err = run(*site, "check")
    assert (code, err) == (0, "")
    assert f"backend=memory  (--url)\nhost={url.removeprefix('memory://')}  (--url)\n" in out
    assert f"numretries=1  (hive.lock.numretries, {file}:3)\n" in out
    assert f"hive.unlock.numretries=3  ({file}:4; not used: no setting is needed" in out
    assert out.endswith(f"WARNING: {nothing}\n")
    settings, findings = map(json.loads, run(*site, "--output", "json", "check")[1].splitlines())
    assert {row["setting"]: row["source"] for row in settings}["host"] == "--url"
    assert findings == [{"finding": "warning", "text": nothing}]
    assert run(*site, "-e", "lock table dw.t exclusive") == (0, "", f"WARNING: {nothing}\n")
    manager.acquire(owner="job", writes=["dw.u"])
    assert run(*site, "--timeout", "0.01", "-e", "lock table dw.u shared")[0] == 75


def test_a_hive_site_alone_names_the_lock_store(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "hive-site.xml"
    file.write_text(
        "<configuration><property><name>hive.zookeeper.quorum</name><value>127.0.0.1:1</value></property>"
        "<property><name>hive.zookeeper.session.timeout</name><value>1s</value></property></configuration>"
    )
    code, _, err = run("--hive-site", str(file), "-e", "show locks")
    assert (code, "127.0.0.1:1" in err) == (1, True), "before the environment"
    file.write_text("<configuration/>")
    code, _, err = run("--hive-site", str(file), "-e", "show locks")
    assert (code, "hive.zookeeper.quorum is not set" in err) == (2, True)


def test_a_hive_site_says_how_long_lock_waits(run: Run, manager: LockManager, tmp_path: Path, url: str) -> None:
    file = tmp_path / "hive-site.xml"
    file.write_text(
        "<configuration><property><name>hive.lock.numretries</name><value>2</value></property>"
        "<property><name>hive.lock.sleep.between.retries</name><value>0.01s</value></property></configuration>"
    )
    manager.acquire(owner="job", writes=["dw.t"])
    code, _, err = run("--hive-site", str(file), "--url", url, "-e", "lock table dw.t shared")
    assert (code, "within 0.02 s: job holds" in err) == (75, True)


def test_a_store_that_does_not_answer_is_waited_for_and_said_once(
    run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, failures = MemoryAcquisition.step, iter([True] * 3)

    def answers_at_last(self: MemoryAcquisition) -> Any:
        if next(failures, False):
            raise StoreUnavailable("\x1b[2Jzk1 is down")
        return step(self)

    monkeypatch.setattr(pending, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(MemoryAcquisition, "step", answers_at_last)
    said = "hivelock: The lock store does not answer; asking again for 60 s: \\x1b[2Jzk1 is down\n"
    assert run("--timeout", "60", "-e", "lock table dw.t exclusive") == (0, "", said)
    assert manager.show("dw.t")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where a shell started the tests in the background, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_the_queue(run: Run, manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.t"])

    def interrupt() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not manager.waiters() and time.monotonic() < deadline:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code, _, err = run("--timeout", "60", "-e", "lock table dw.t shared")
    thread.join()
    assert (code, "interrupted" in err) == (130, True)
    assert not manager.waiters()
    assert len(manager.leases()) == 1


def test_who_reads_it_may_have_had_enough(manager: LockManager, tmp_path: Path) -> None:
    """As head has: the answer goes nowhere, and Python's own complaint would go to the terminal."""
    read, write = os.pipe()
    os.close(read)
    script = "from airflow_hivelock.cli.command import main; raise SystemExit(main())"
    given = ["--url", f"sqlite:///{tmp_path}/leases.db", "-e", "SHOW LEASE *"]
    ended = subprocess.run([sys.executable, "-c", script, *given], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert b"BrokenPipeError" not in ended.stderr


def test_an_option_of_the_url_is_named_as_it_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_HIVELOCK_URL", f"sqlite:///{tmp_path}/leases.db?timeout_s=0")
    code, _, err = run("-e", "SHOW LOCKS")
    assert (code, "timeout_s='0'" in err, "--timeout" in err) == (2, True, False)


def test_json_is_a_line_a_statement_with_an_array_of_objects(run: Run, manager: LockManager) -> None:
    code, out, _ = run(
        "--output", "json", "-e", "lock table dw.t shared; show locks extended; show locks dw.u; show lease *"
    )
    lock, locks, none, leases = map(json.loads, out.splitlines())
    assert (code, none) == (0, [])
    assert lock[0].keys() == {"lease_id", "token", "object", "mode", "owner"}
    assert lock[0]["token"] == manager.leases()[0].token
    assert locks[0]["object"] == "dw.t"
    assert locks[0].keys() == {
        *("object", "mode", "owner", "lease_id", "since_utc", "token", "expires_utc", "explicit", "query")
    }
    assert [lease.keys() for lease in leases] == [
        {
            *("lease_id", "user", "db_name", "table_name", "partition_name"),
            *("lease_type", "start_utc", "end_utc", "token"),
        }
    ]


def test_the_queue_is_shown_to_people_and_to_scripts(run: Run, manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.t"])
    waiting = manager.begin(rules.request("late", writes=["dw.t/dt=1"]), lambda: None)
    waiting.poll()
    try:
        code, text, _ = run("-e", "show waiters dw.t")
        (rows,) = map(json.loads, run("--output", "json", "-e", "show waiters dw.t")[1].splitlines())
        table = run("--output", "table", "-e", "show waiters")[1]
    finally:
        waiting.withdraw()
    assert code == 0
    assert text.startswith("1\tlate waits for dw.t/dt=1 EXCLUSIVE since ")
    assert text.endswith("\n\tjob holds dw.t EXCLUSIVE\n")
    assert [(row["position"], row["user"], row["in_the_way"]) for row in rows] == [
        (1, "late", "job holds dw.t EXCLUSIVE")
    ]
    assert table.splitlines()[0].split() == [
        "position",
        "user",
        "waits_for",
        "priority",
        "wants",
        "since_utc",
        "in_the_way",
        "expected_least_s",
        "expected_most_s",
    ]
    assert run("-e", "show waiters") == (0, "", "")


def test_what_hive_does_not_print_is_a_table(run: Run, manager: LockManager) -> None:
    lease = manager.acquire(owner="job", writes=["dw.t/dt=1"])
    _, out, _ = run("-e", "show lease dw.t partition (dt=1)")
    heads, _, row = out.splitlines()
    assert heads.split()[:3] == ["lease_id", "user", "db_name"]
    assert row.split()[:6] == [lease.id, "job", "dw", "t", "dt=1", "x"]
    _, out, _ = run("--output", "table", "-e", "show locks dw.t")
    assert out.splitlines()[2].split()[:4] == ["dw.t", "SHARED", "job", lease.id]


def test_a_statement_s_answer_is_printed_before_the_next_one_fails(run: Run, manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.t"])
    code, out, _ = run("-e", "show locks; lock table dw.t shared; lock table dw.u shared")
    assert (code, out) == (75, "dw@t\tEXCLUSIVE\n")
    assert not manager.show("dw.u")


def test_statements_come_from_a_file_or_from_standard_input(
    run: Run, manager: LockManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "locks.sql"
    file.write_text("-- one\nlock table dw.t partition (dt='é')\n  shared;\nshow locks dw.t;\n", encoding="utf-8")
    assert run("-f", str(file)) == (0, "dw@t\tSHARED\n", "")
    file.write_text("unlock table dw.t partition (dt='é')", encoding="utf-8-sig")
    assert run("-f", str(file)) == (0, "", "")
    assert run("-e", "lock table dw.t partition (dt='é') shared")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("show locks dw.t partition (dt='é')"))
    assert run() == (0, "dw@t@dt=é\tSHARED\n", "")


def test_a_person_is_asked_until_the_end(run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.acquire(owner="job", writes=["dw.u"])
    prompts = []
    lines = iter(["use dw;", "show", " locks", ";", "lock table u shared;", "lock table t", "Ctrl-C", "show locks t;"])

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        line = next(lines, "Ctrl-D")
        if line.startswith("Ctrl"):
            raise KeyboardInterrupt if line == "Ctrl-C" else EOFError
        return line

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    code, out, err = run()
    assert (code, out.split()) == (0, ["dw@u", "EXCLUSIVE"])
    assert "job holds dw.u EXCLUSIVE" in err
    assert prompts[:4] == ["hivelock (default)> ", "hivelock (dw)> ", "    > ", "    > "]


def test_capabilities_have_a_line_each_with_its_meaning(run: Run) -> None:
    code, out, _ = run("capabilities")
    names = [field.name for field in fields(Capabilities)]
    assert (code, [line.split()[1] for line in out.splitlines()]) == (0, names)
    assert "no   expires       an expired lease blocks no request" in out
    (rows,) = map(json.loads, run("--output", "json", "capabilities")[1].splitlines())
    assert {row["capability"]: row["promised"] for row in rows}["acquires"] is True


def test_the_help_teaches(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for line in (
        *SYNTAX.splitlines(),
        "hivelock capabilities",
        '-e "SHOW LOCKS dw.flights EXTENDED"',
        "  75   a lock was",
    ):
        assert line in out


def test_airflow_finds_the_command_and_loads_little_for_it() -> None:
    assert get_provider_info()["cli"] == ["airflow_hivelock.cli.command.get_cli_commands"]
    (command,) = get_cli_commands()
    assert command.name == "hivelock"
    heavy = {"kazoo", "sqlglot", "tabulate", "sqlalchemy", "pyspark", "airflow"}
    script = f"import sys, airflow_hivelock.cli.command; print(*sorted({heavy} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []


def test_the_audit_trail_has_the_login_behind_a_user_that_says_otherwise(
    run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "forged")
    login = pwd.getpwuid(os.getuid()).pw_name
    for args, said in (((), f"ann (logged in as {login} on {socket.gethostname()})"), (("--user", login), login)):
        lease = manager.acquire(owner="job", writes=["dw.t"])
        assert run(*args, "--reason", "gone", "-e", f"drop force lease {lease.id}")[0] == 0
        assert [entry.user for entry in manager.audit()][-1] == said
    assert main(["--reason", "gone", "-e", "lock table dw.u shared"]) == 0
    assert f"cli:{login}:" in manager.leases()[0].owner, "the environment says what one likes"


def test_what_others_wrote_cannot_drive_the_terminal(
    run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.acquire(owner="job", writes=["dw.t"], query="a\x1b[2J\x9bb")
    assert "\x1b[2J\x9b" in run("-e", "show locks dw.t extended")[1], "Hive's output, byte for byte"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    out = run("-e", "show locks dw.t extended")[1]
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "a\ufffd[2J\ufffdb" in out


def test_what_ends_with_a_host_is_listed_before_it_is_declared_gone(run: Run, manager: LockManager) -> None:
    lease = manager.start_work(manager.acquire(owner="job", writes=["dw.t"]), "load", _on("worker-7"))
    other = manager.start_work(manager.acquire(owner="other", writes=["dw.u"]), "load", _on("worker-8"))
    code, out, err = run("host-gone", "worker-7", "--reason", "burnt down")
    assert (code, lease.id in out, other.id in out) == (2, True, False)
    assert "nothing is declared yet" in err
    assert "(--reason)" in err
    assert not manager.audit()
    assert run("host-gone", "worker-7", "--yes")[0] == 2, "without a reason"
    code, out, err = run("host-gone", "worker-7", "--reason", "burnt down", "--yes")
    assert (code, lease.id in out, err) == (0, True, "")
    (entry,) = manager.audit()
    assert (entry.lease_id, entry.user[:3], entry.reason[-10:]) == (lease.id, "ann", "burnt down")
    (rows,) = map(json.loads, run("--output", "json", "host-gone")[1].splitlines())
    assert [(row["host"], row["lease_id"], bool(row["gone"])) for row in rows] == [
        ("worker-7", lease.id, True),
        ("worker-8", other.id, False),
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["worker-9"], "no lease records work on 'worker-9'. Hosts with recorded work: worker-7"),
        ([socket.gethostname()], "is this host, so it is not gone"),
        (["worker-7", "worker-8"], "one host at a time"),
    ],
)
def test_a_host_that_cannot_be_meant_is_not_declared_gone(
    args: list[str], said: str, run: Run, manager: LockManager
) -> None:
    manager.start_work(manager.acquire(owner="job", writes=["dw.t"]), "load", _on("worker-7"))
    code, _, err = run("host-gone", *args, "--reason", "burnt down", "--yes")
    assert (code, said in err) == (2, True), err
    assert not manager.audit()


def _on(host: str) -> str:
    """A process of that host, as a lease records it."""
    return applications.encode(Processes(host=host))
