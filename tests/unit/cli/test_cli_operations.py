"""What an administrator does with hivelock: groups, hosts that are gone, and a hive-site.xml."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from airflow_hivelock.work import applications
from airflow_hivelock.work.processes import Processes
from tests.unit.cli.running import Run, fails

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_hivelock.locks import LockManager


def test_no_more_leases_of_a_group_are_taken_than_it_is_said(run: Run, manager: LockManager) -> None:
    limit = ("--lease-group", "rerun", "--max-leases", "1")
    assert run(*limit, "-e", "lock table dw.a exclusive") == (0, "", "")
    late = "holds a lease of 'rerun'. Wait longer (--timeout), or raise the limit of 'rerun': see SHOW GROUPS"
    fails(run, 75, late, *limit, "-e", "lock table dw.b exclusive")
    assert run("-e", "lock table dw.b exclusive") == (0, "", "")
    assert run(*limit[:2], "-e", "lock table dw.c exclusive") == (0, "", ""), "without a limit of its own"
    assert run(*limit[2:], "-e", "lock table dw.c exclusive")[0] == 2
    fails(run, 2, "--max-leases=0", *limit[:3], "0", "-e", "lock table dw.c exclusive")
    fails(run, 2, "--weight=0", *limit[:2], "--weight", "0", "-e", "lock table dw.c exclusive")


def test_the_limit_of_a_group_is_set_listed_and_dropped(run: Run, manager: LockManager) -> None:
    comment = "as many as the cluster runs"
    assert run("group", "set", "spark-prod", "--leases", "2", "--comment", comment, "--user", "ann")[0] == 0
    counted = ("--lease-group", "spark-prod", "--weight", "2", "--user", "bob")
    assert run(*counted, "-e", "lock table dw.a exclusive") == (0, "", "")
    fails(run, 75, "holds a lease of 'spark-prod'", *counted[:2], "-e", "lock table dw.b exclusive")
    (rows,) = map(json.loads, run("--output", "json", "group", "list")[1].splitlines())
    owner = next(holder.owner for holder in manager.show("dw.a"))
    assert rows == [
        {
            **{"group": "spark-prod", "leases": 2, "weight": 1, "taken": 2, "waiting": 0, "comment": comment},
            **{"holders": f"{owner} (2)", "waiters": ""},
        }
    ]
    assert run("group", "set", "spark-prod", "--leases", "2", "--user", "ann")[0] == 0
    assert [use.stored and use.stored.comment for use in manager.groups()] == [comment], "it is kept"
    heavy = "weighs 3, but the limit of its group 'spark-prod' is 2"
    fails(run, 2, heavy, "--lease-group", "spark-prod", "--weight", "3", "-e", "lock table dw.b exclusive")
    assert run("group", "drop", "spark-prod", "--reason", "no longer shared")[0] == 0
    assert run("--lease-group", "spark-prod", "-e", "lock table dw.b exclusive") == (0, "", "")
    fails(run, 1, "has no limit in the lock store. SHOW GROUPS", "group", "drop", "spark-prod")
    assert next(entry.user.partition(" ")[0] for entry in manager.audit()) == "ann"
    assert manager.audit()[-1].reason.endswith(". no longer shared")


@pytest.mark.parametrize(
    "args",
    [
        *[("set",), ("set", "g"), ("set", "g", "h", "--leases", "2"), ("drop",), ("list", "g"), ("show",)],
        *[("drop", "g", "--leases", "2"), ("list", "--weight", "2"), ("--comment", "why")],
    ],
)
def test_a_malformed_group_command_changes_nothing(run: Run, manager: LockManager, args: tuple[str, ...]) -> None:
    fails(run, 2, "group set NAME --leases N", "group", *args)
    assert (list(manager.groups()), list(manager.audit())) == ([], [])


def hive_site(folder: Path, properties: dict[str, str]) -> Path:
    """A file with a property a line, from the second line on."""
    rows = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    file = folder / "hive-site.xml"
    file.write_text("\n".join(("<configuration>", *rows, "</configuration>")))
    return file


def test_a_hive_site_says_what_the_options_do_not(run: Run, manager: LockManager, tmp_path: Path, url: str) -> None:
    properties = {"hive.support.concurrency": "false", "hive.lock.numretries": "1", "hive.unlock.numretries": "3"}
    file = hive_site(tmp_path, properties)
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
    file = hive_site(tmp_path, {"hive.zookeeper.quorum": "127.0.0.1:1", "hive.zookeeper.session.timeout": "1s"})
    fails(run, 1, "127.0.0.1:1", "--hive-site", str(file), "-e", "show locks")  # before the environment
    file.write_text("<configuration/>")
    fails(run, 2, "hive.zookeeper.quorum is not set", "--hive-site", str(file), "-e", "show locks")


def test_a_hive_site_says_how_long_lock_waits(run: Run, manager: LockManager, tmp_path: Path, url: str) -> None:
    file = hive_site(tmp_path, {"hive.lock.numretries": "2", "hive.lock.sleep.between.retries": "0.01s"})
    manager.acquire(owner="job", writes=["dw.t"])
    given = ("--hive-site", str(file), "--url", url)
    fails(run, 75, "within 0.02 s: job holds", *given, "-e", "lock table dw.t shared")


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
        ([], "host-gone --yes: name one host at a time"),
    ],
)
def test_a_host_that_cannot_be_meant_is_not_declared_gone(
    args: list[str], said: str, run: Run, manager: LockManager
) -> None:
    manager.start_work(manager.acquire(owner="job", writes=["dw.t"]), "load", _on("worker-7"))
    fails(run, 2, said, "host-gone", *args, "--reason", "burnt down", "--yes")
    assert not manager.audit()


def _on(host: str) -> str:
    """A process of that host, as a lease records it."""
    return applications.encode(Processes(host=host))


def test_a_host_is_declared_gone_only_where_airflow_is_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "airflow_hivelock.cli.hosts", raising=False)
    monkeypatch.delattr("airflow_hivelock.cli.hosts", raising=False)
    monkeypatch.setitem(sys.modules, "airflow_hivelock.work.hosts", None)
    monkeypatch.delattr("airflow_hivelock.work.hosts", raising=False)
    fails(run, 1, "host-gone needs Airflow", "host-gone")


WARNED = "hivelock: --url has a password, and other users of this host can read it in the list of processes. Set "


@pytest.mark.parametrize(
    ("url", "code"),
    [("zookeeper://ann:s3cr3tpw@127.0.0.1:1/hive?timeout_s=1", 1), ("sqlite:///x.db?token=s3cr3tpw", 2)],
)
def test_a_password_in_the_command_is_warned_of_once_and_not_printed(run: Run, url: str, code: int) -> None:
    failed, out, err = run("--url", url, "-e", "SHOW LOCKS")
    assert (failed, out, err.count("AIRFLOW_HIVELOCK_URL")) == (code, "", 1)
    assert err.startswith(WARNED)
    assert "s3cr3tpw" not in err


def test_a_password_in_the_environment_is_not_warned_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HIVELOCK_URL", "zookeeper://ann:s3cr3tpw@127.0.0.1:1/hive?timeout_s=1")
    (line,) = run("-e", "SHOW LOCKS")[2].splitlines()
    assert "ZooKeeper" in line


def test_a_url_without_a_password_is_not_warned_of(run: Run) -> None:
    assert run("--url", "memory://", "-e", "SHOW LOCKS") == (0, "", "")
