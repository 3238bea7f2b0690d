"""The command line: ``hivelock`` by itself, ``airflow hivelock`` in Airflow. Loading it loads little: Airflow does so
at each of its commands."""

from __future__ import annotations

import argparse
import ast
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.hive.duration import seconds
from airflow_hivelock.locks.model import MAX_LEASE_S
from airflow_hivelock.locks.statements.statement import SYNTAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.cli.cli_config import CLICommand

    from airflow_hivelock.cli.shell import Opened

URL = "AIRFLOW_HIVELOCK_URL"
CONNECTION = "hivelock_default"

_HELP = "See Hive's locks, take and free them, with Hive's own statements"
_DESCRIPTION = f"{_HELP}. Without -e or -f, statements are read from standard input."
_EPILOG = """\
examples:
  {name} -e "SHOW LOCKS dw.flights EXTENDED"
  {name} --timeout 600 -e "LOCK TABLE dw.flights PARTITION (dt='2013-01-01') EXCLUSIVE"
  {name} -e "UNLOCK TABLE dw.flights PARTITION (dt='2013-01-01')"
  {name} --output json -e "SHOW LEASE *"
  {name} -e "SHOW WAITERS dw.flights"
  {name} --reason "its cluster is gone" -e "DROP FORCE LEASE dw.flights"
  {name} -e "EXPLAIN LOCKS INSERT INTO dw.delays PARTITION (dt='2013-01-01') SELECT 1"
  {name} capabilities
  {name} check dw.flights dw.delays
  {name} host-gone
  {name} host-gone worker-7 --reason "burnt down" --yes

statements, with ; in between:
  {syntax}

LOCK TABLE stands until UNLOCK TABLE. It takes SHARED on the table's database, too, and for a partition on
its table, where Hive's own takes the one lock; and UNLOCK TABLE frees what the same user has locked, where
Hive's frees everybody's locks.

exit codes:
  0    all went well
  1    a statement was refused, or the lock store does not answer; check: an ERROR, data is unprotected
  2    the command or one of the statements is malformed
  75   a lock was not granted in time: the same may succeed later
  130  Ctrl-C; a place in the queue has been given up"""


def _seconds(text: str) -> float:
    found_s = seconds(text)
    if found_s is None:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a time; write seconds, as in 600, or 90s, 10m, 2h")
    if found_s > MAX_LEASE_S:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is longer than a year")
    return found_s


def _columns(text: str) -> dict[str, list[str]]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is not a dict; write \"{{'dw.hourly': ['dt date', 'hr string']}}\""
        )
    return found


class _Version(argparse.Action):
    """argparse's own, which Airflow's commands cannot have."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"hivelock {version('airflow-hivelock')}\n")
        parser.exit()


_URL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--url", {"help": f"the lock store: zookeeper://zk1:2181,zk2:2181/hive_zookeeper_namespace; or set {URL}"}),
    (
        "--hive-site",
        {
            "metavar": "FILE",
            "help": "a hive-site.xml, as /etc/hive/conf/hive-site.xml: it says what the other options do not, the lock store, the "
            "metastore, time-outs",
        },
    ),
    ("--metastore", {"metavar": "URI", "help": "where tables are looked up: thrift://metastore:9083"}),
)
_CONN_ID: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--conn-id", {"default": CONNECTION, "help": f"the connection to the lock store; by default {CONNECTION}"}),
)
_ARGUMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("-e", {"dest": "execute", "metavar": "STATEMENTS", "help": "the statements to run"}),
    ("-f", {"dest": "file", "metavar": "FILE", "help": "a file of statements to run"}),
    ("--output", {
        "choices": ("hive", "table", "json"),
        "default": "hive",
        "help": "hive: what Hive prints, and a table for what it does not know; json: for each statement a line with "
        "an array of objects",
    }),
    ("--database", {"default": "default", "help": "where tables without a database lie, until USE"}),
    ("--partition-columns", {
        "type": _columns,
        "metavar": "DICT",
        "help": "the partition columns of tables that no metastore knows, outermost first, with their types: "
        "\"{'dw.hourly': ['dt date', 'hr string']}\"",
    }),
    ("--unpartitioned", {
        "action": "append",
        "default": [],
        "metavar": "TABLE",
        "help": "a table without partitions that no metastore knows, so that to read it is SHARED; once for each",
    }),
    ("--locks", {
        "choices": ("stricter", "documented", "hive"),
        "help": "whose table of commands EXPLAIN LOCKS follows where Hive's documents and real Hive differ; by default the "
        "connection's, or the stricter",
    }),
    ("--timeout", {
        "type": _seconds,
        "metavar": "TIME",
        "help": "how long LOCK waits for its turn, as in 90s, 10m or 2h, or in seconds, and bears a lock store that does not answer; by default not at all: it "
        "is refused, naming the holder. With a hive-site.xml that says it, as long as Hive tries",
    }),
    ("--lease", {
        "type": _seconds,
        "default": MAX_LEASE_S,
        "metavar": "TIME",
        "help": "where the lock store frees by time: after how long it frees what LOCK takes; by default the longest",
    }),
    ("--priority", {
        "type": int,
        "default": 1,
        "metavar": "N",
        "help": "of those that wait for a lock the larger goes first, within the lock store's bound; by default 1, as all have",
    }),
    ("--max-leases", {
        "type": int,
        "metavar": "N",
        "help": "LOCK waits until fewer than that many leases of its group stand, its own and other people's; needs --lease-group",
    }),
    ("--lease-group", {"default": "", "metavar": "NAME", "help": "whose leases --max-leases counts"}),
    ("--user", {"help": "who locks and unlocks; by default who is logged in"}),
    ("--force", {"action": "store_true", "help": "UNLOCK frees other people's leases, too; needs --reason"}),
    ("--reason", {"default": "", "help": "why something is freed by force, or a host is gone; the audit trail keeps it"}),
    ("--version", {"action": _Version, "nargs": 0, "help": "print the version"}),
    ("--yes", {"action": "store_true", "help": "host-gone says it; without, it only lists what has ended with that host"}),
    ("command", {
        "nargs": "?",
        "choices": ("capabilities", "check", "host-gone"),
        "help": "capabilities: what the lock store promises; check: whether this Hive sees its locks, which of the "
        "tables that are named it does not cover, and what this Airflow lacks; host-gone: the hosts that leases record "
        "work on, or the word that the one that is named will not come back, so that what ran there has ended",
    }),
    ("names", {"nargs": "*", "help": "for check, tables; for host-gone, the host"}),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """``hivelock``.

    :return: the exit code.
    """
    parser = _parser("hivelock", _URL)
    args = parser.parse_args(argv)
    if not (args.url or args.hive_site or os.environ.get(URL)):
        parser.error(f"which lock store? Give --hive-site or --url, or set {URL}")

    from airflow_hivelock.cli import shell

    return shell.run(args, lambda: _open(args.url, args.hive_site, args.metastore))


def _open(url: str | None, hive_site: str | None, metastore: str | None) -> Opened:
    """What the arguments name; a file before the environment."""
    from airflow_hivelock.cli.shell import Opened
    from airflow_hivelock.locks import connect
    from airflow_hivelock.locks.hive import lock_store
    from airflow_hivelock.locks.hive.catalog import connect_catalog
    from airflow_hivelock.locks.hive.lock_store import Sourced
    from airflow_hivelock.locks.hive.site import Site
    from airflow_hivelock.locks.url import check

    site = Site.read(hive_site) if hive_site else None
    if site and not url:
        said = lock_store.of_site(site)
        url = lock_store.url(said)
    else:
        source, url = ("--url", url) if url else (URL, os.environ[URL])
        check(url)
        said = (lock_store.beside(site) if site else {}) | lock_store.of_url(url, source)
    if metastore:
        said["metastore_uri"] = Sourced("metastore_uri", metastore, "--metastore")
    uri = said.get("metastore_uri")
    return Opened(
        connect(url),
        connect_catalog(uri.value) if uri else None,
        (*said.values(), *(lock_store.unused(site) if site else ())),
        site,
        lock_store.patience_s(said) or 0.0,
    )


def main_in_airflow(argv: Sequence[str] | None = None) -> None:
    """``python -m airflow_hivelock.cli``: what ``airflow hivelock`` is, for an Airflow that has no commands of providers."""
    _in_airflow(_parser("python -m airflow_hivelock.cli", _CONN_ID).parse_args(argv))


def get_cli_commands() -> list[CLICommand]:
    """``airflow hivelock``, for the providers manager."""
    from airflow.cli.cli_config import ActionCommand, Arg

    return [
        ActionCommand(
            name="hivelock",
            help=_HELP,
            description=_DESCRIPTION,
            epilog=_epilog("airflow hivelock"),
            func=_in_airflow,
            args=[Arg((flag,), **options) for flag, options in (*_CONN_ID, *_ARGUMENTS)],  # type: ignore[no-untyped-call]
        )
    ]


def _in_airflow(args: argparse.Namespace) -> None:
    def connect() -> Opened:
        from airflow_hivelock import comms, compat
        from airflow_hivelock.cli.shell import Opened
        from airflow_hivelock.hooks import HiveLockHook
        from airflow_hivelock.locks.hive.coverage import unprotected
        from airflow_hivelock.ui.plugin import why_no_page

        comms.read_metadata()
        hook = HiveLockHook(args.conn_id)
        settings = hook.settings
        args.locks = args.locks or settings.locks
        timeout_s = (settings.lock_timeout_s if settings.site else None) or 0.0
        lacks = compat.lacks()
        if args.command == "check" and (why := why_no_page()):
            lacks.append(why)
        off = unprotected(
            f"tasks lock nothing: concurrency is false in connection {args.conn_id!r}. Set it to true, or leave it out"
        )
        return Opened(
            hook.manager(),
            hook.catalog(),
            tuple(settings.sourced()),
            settings.site,
            timeout_s,
            lacks,
            () if settings.concurrency else (off,),
        )

    from airflow_hivelock.cli import shell

    sys.exit(shell.run(args, connect))


def _parser(name: str, where: tuple[tuple[str, dict[str, Any]], ...]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        name, description=_DESCRIPTION, epilog=_epilog(name), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, options in (*where, *_ARGUMENTS):
        parser.add_argument(flag, **options)
    return parser


def _epilog(name: str) -> str:
    return _EPILOG.format(name=name, syntax=SYNTAX.replace("\n", "\n  "))
