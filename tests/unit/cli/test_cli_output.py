"""What hivelock prints: to people, to scripts and to a terminal."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock import __version__
from airflow_hivelock.locks import Lease, LockManager, StoreUnavailable, connect, pending, rules
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.memory import MemoryAcquisition
from airflow_hivelock.locks.statements.statement import SYNTAX

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.running import Run


def test_it_says_which_version_it_is(run: Run) -> None:
    assert run("--version") == (0, f"hivelock {__version__}\n", "")


def test_an_outage_is_told_in_one_line(tmp_path: Path) -> None:
    """Without a configured logging, Python would print kazoo's own log lines before it."""
    command = [sys.executable, "-c", "from airflow_hivelock.cli.command import main; raise SystemExit(main())"]
    given = ["--url", "zookeeper://127.0.0.1:1/hive?timeout_s=2", "-e", "SHOW LOCKS"]
    ended = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, line.startswith("hivelock: ZooKeeper at 127.0.0.1:1 did not answer")) == (1, True)


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


def test_a_warning_of_a_lock_store_is_marked_as_hivelock_s(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own handler printed it bare, as a line of an unknown program."""

    def warns(_: LockManager) -> list[Lease]:
        logging.getLogger("airflow_hivelock.locks.backends.database.notifier").warning("pg1 is down")
        return []

    monkeypatch.setattr(LockManager, "leases", warns)
    assert run("-e", "show lease *")[2] == "hivelock: pg1 is down\n"


HIVELOCK = (sys.executable, "-c", "from airflow_hivelock.cli.command import main; raise SystemExit(main())")


@pytest.mark.parametrize(("given", "code"), [(["-e", "SHOW LEASE *"], 1), (["--version"], 0), (["--help"], 0)], ids=str)
def test_who_reads_it_may_have_had_enough(tmp_path: Path, given: list[str], code: int) -> None:
    """As head has: the answer goes nowhere, and Python's own complaint would go to the terminal."""
    read, write = os.pipe()
    os.close(read)
    command = [*HIVELOCK, "--url", f"sqlite:///{tmp_path}/leases.db", *given]
    environment = os.environ | {"PYTHONUNBUFFERED": ""}  # as usual: the output is written at the end
    ended = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (code, b"")


def in_shell(arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``hivelock`` with *arguments*, and redirections of a shell."""
    command = f"{shlex.join(HIVELOCK)} {arguments}"
    return subprocess.run(
        ["bash", "-c", command], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_a_result_on_a_full_disk_is_reported_and_its_lease_can_be_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    ended = in_shell("-e 'GRAB LEASE dw.t EXCLUSIVE' > /dev/full", AIRFLOW_HIVELOCK_URL=url, PYTHONUNBUFFERED="")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line == (
        "hivelock: the statement has run, but its result cannot be written to standard output: [Errno 28] No space left on "
        "device. SHOW LEASE * lists the leases that are held"
    )
    with connect(url) as manager:
        assert [str(holder.object) for holder in manager.show()] == ["dw", "dw.t"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("-e 'SHOW LEASE *' >&-", 0, ""),
        ("--version >&-", 0, ""),
        ("<&-", 2, "hivelock: there is no statement in standard input; --help lists the statements\n"),
    ],
)
def test_a_shell_may_have_closed_a_stream(arguments: str, code: int, said: str) -> None:
    ended = in_shell(arguments, AIRFLOW_HIVELOCK_URL="memory://")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", said)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_a_terminal_without_unicode_gets_every_row(encoding: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    with connect(url) as manager:
        manager.acquire(owner="job", writes=["dw.t/city=Zürich", "dw.t/city=京都"])
    table, in_json = (
        subprocess.run(
            [*HIVELOCK, "--url", url, "--output", output, "-e", "SHOW LEASE *"],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            encoding=encoding,
            check=True,
        ).stdout
        for output in ("hive", "json")
    )
    assert ("city=Zürich" if encoding != "ascii" else r"city=Z\xfcrich") in table
    assert ("city=京都" if encoding == "utf-8" else r"city=\u4eac\u90fd") in table
    assert {row["partition_name"] for row in json.loads(in_json)} == {"city=Zürich", "city=京都"}


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


HOSTILE = "a\x1b]0;pwned\x07\x9b2J\u202eb\u2066c"
VISIBLE = r"a\x1b]0;pwned\x07\x9b2J\u202eb\u2066c"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("output", ["hive", "table"])
def test_control_characters_of_another_client_are_visible(
    run: Run, manager: LockManager, monkeypatch: pytest.MonkeyPatch, output: str, terminal: bool
) -> None:
    """A pipe often ends at a terminal: less -R, and the logs of tasks and of a CI."""
    manager.acquire(owner="job", writes=["dw.t"], query=HOSTILE)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    out = run("--output", output, "-e", "show locks dw.t extended")[1]
    assert VISIBLE in out
    assert all(line.replace("\t", "").isprintable() for line in out.split("\n"))


def test_tabs_and_line_feeds_of_hive_s_format_stay(run: Run, manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.t/city=京都"], query="select\t1\r\n")
    assert run("-e", "show locks")[1] == "dw@t\tSHARED\ndw@t@city=京都\tEXCLUSIVE\n"


def test_json_escapes_control_characters_and_keeps_their_values(run: Run, manager: LockManager) -> None:
    manager.acquire(owner="job", writes=["dw.t"], query=HOSTILE)
    out = run("--output", "json", "-e", "show locks dw.t extended")[1]
    assert out.removesuffix("\n").isprintable()
    assert json.loads(out)[0]["query"] == HOSTILE
