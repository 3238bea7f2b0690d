"""The command line over the memory backend: what it prints, and the exit codes that scripts live by."""

from __future__ import annotations

import io
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.cli.command import get_cli_commands, main
from airflow_hivelock.get_provider_info import get_provider_info
from airflow_hivelock.locks import LockManager, StoreUnavailable, plan, rules
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.locks.pending import Patience, PendingLease
from tests.unit.cli.running import Run, fails

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]

DEADLINE_S = 30.0


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
        (2, ("--leases", "0", "-e", "lock table dw.u shared"), "--leases has no effect here: it is only for group"),
        (2, ("--comment", "", "-e", "show locks"), "--comment has no effect here: it is only for group"),
        (2, ("--yes", "-f", "/dev/null"), "--yes has no effect here: it is only for host-gone"),
        (2, ("--yes", "check"), "--yes has no effect here: it is only for host-gone"),
        (
            2,
            ("--timeout", "nan", "-e", "show locks"),
            "--timeout: 'nan' is not a time. Write seconds, as in 600, or 90s, 10m, 2h",
        ),
        (2, ("--timeout", "1e300", "-e", "show locks"), "'1e300' is not a time"),
        (2, ("--timeout", "10 fortnights", "-e", "show locks"), "'10 fortnights' is not a time"),
        (2, ("--timeout", "400d", "-e", "show locks"), "'400d' is longer than a year"),
        (2, ("capabilities", "extra", "words"), "'extra words' has no effect here: capabilities takes no names"),
        (2, ("--user", "", "-e", "lock table dw.u shared"), "--user is empty. Name the user"),
        (2, ("--user", " ", "group", "set", "daily", "--leases", "2"), "--user is empty. Name the user"),
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
    fails(run, code, said, *args)
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
    fails(run, 2, "there is no statement in standard input")


def test_standard_input_that_is_no_text_is_malformed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"show locks d\xff"), "utf-8"))
    fails(run, 2, "standard input cannot be read: 'utf-8' codec can't decode byte 0xff")


def test_a_second_lock_by_the_same_user_says_that_it_waits_for_itself(run: Run, manager: LockManager) -> None:
    assert run("-e", "lock table dw.t partition (dt='1') exclusive")[0] == 0
    (lease,) = manager.leases()
    own = f"ann holds it already, with lease {lease.id}: UNLOCK TABLE dw.t PARTITION (dt='1') frees it"
    fails(run, 75, own, "-e", "lock table dw.t exclusive")
    code, _, err = run("--timeout", "0.05", "-e", "lock table dw.t exclusive")
    waits, refused = err.splitlines()
    assert (code, own in waits, "waits for your own lock" in waits) == (75, True, True), err
    assert own in refused
    manager.release(lease)
    manager.acquire(owner="job", writes=["dw.t"])
    assert "holds it already" not in run("--timeout", "0.05", "-e", "lock table dw.t exclusive")[2]


def test_without_a_lock_store_it_says_how_to_name_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_HIVELOCK_URL")
    fails(run, 2, "--url, or set AIRFLOW_HIVELOCK_URL", "-e", "show locks")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where a shell started the tests in the background, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["hivelock"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "start",
    [
        "from {} import {} as main; sys.exit(main())".format(*SCRIPT.split(":")),
        "import runpy; runpy.run_module('airflow_hivelock.cli', run_name='__main__')",
    ],
    ids=["script", "module"],
)
def test_ctrl_c_during_the_imports_prints_no_traceback(start: str) -> None:
    """The imports take most of the first half second."""
    interrupted = f"""
import signal, sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "airflow_hivelock.locks.hive":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
{start}
"""
    ended = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


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


def test_ctrl_c_promises_nothing_that_a_silent_store_does_not_keep(
    run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock may have been granted, or may still be: a lease that no process knows would stay for a year."""

    def away(*_: object) -> None:
        raise StoreUnavailable("zk1 is down")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    manager.acquire(owner="job", writes=["dw.t"])
    monkeypatch.setattr(PendingLease, "withdraw", away)
    monkeypatch.setattr(LockManager, "lease_of", away)
    monkeypatch.setattr(LockManager, "_wait", interrupt)
    code, _, err = run("--timeout", "60", "-e", "lock table dw.t shared")
    (waiter,) = manager.waiters()
    remains, interrupted = err.splitlines()
    assert (code, interrupted) == (
        130,
        "hivelock: interrupted. A waiting request leaves the queue. SHOW LEASE * lists the locks of earlier statements",
    )
    assert remains == (
        f"hivelock: The lock store does not answer. If it has granted a lease to {waiter.owner}, the lease stays: SHOW LEASE * "
        "lists it when the store answers. A waiting request leaves the queue by itself"
    )


@pytest.mark.parametrize(
    "statement", ["lock table dw.t shared", "grab lease dw.t shared", "reserve dw.t until '23:59' reason 'r'"]
)
def test_a_grant_whose_answer_was_lost_is_reported(
    statement: str, run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grant(self: MemoryAcquisition) -> None:
        step(self)
        raise StoreUnavailable("zk1 is down")

    step = MemoryAcquisition.step
    monkeypatch.setattr(MemoryAcquisition, "step", grant)
    monkeypatch.setattr(PendingLease, "withdraw", lambda _: None)
    monkeypatch.setattr(Patience, "bear", refuse)
    code, _, err = run("-e", statement)
    (lease,) = manager.leases()
    assert code == 1
    assert f"If it has granted a lease to {lease.owner}, the lease stays: SHOW LEASE * lists it" in err
    assert err.endswith("hivelock: zk1 is down\n")


def refuse(_: Patience, error: StoreUnavailable) -> None:
    raise error


def test_an_option_of_the_url_is_named_as_it_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_HIVELOCK_URL", f"sqlite:///{tmp_path}/leases.db?timeout_s=0")
    code, _, err = run("-e", "SHOW LOCKS")
    assert (code, "timeout_s='0'" in err, "--timeout" in err) == (2, True, False)


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
