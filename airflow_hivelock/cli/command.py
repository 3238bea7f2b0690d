"""The command line: ``hivelock``, and ``airflow hivelock`` in Airflow.

The module imports little at its start, because Airflow loads it for each of its commands.
"""

from __future__ import annotations

import argparse
import ast
import logging
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_hivelock.locks.hive.properties import seconds
from airflow_hivelock.locks.model import MAX_LEASE_S
from airflow_hivelock.locks.statements.statement import SYNTAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.cli.cli_config import CLICommand

    from airflow_hivelock.cli.shell import Opened

log = logging.getLogger(__name__)

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
  {name} --output json -e "SHOW HISTORY dw.flights OWNER 'daily' LIMIT 20; SHOW AUDIT LIMIT 20"
  {name} --reason "its cluster is gone" -e "DROP FORCE LEASE dw.flights"
  {name} -e "EXPLAIN LOCKS INSERT INTO dw.delays PARTITION (dt='2013-01-01') SELECT 1"
  {name} capabilities
  {name} check dw.flights dw.delays
  {name} host-gone
  {name} host-gone worker-7 --reason "burnt down" --yes
  {name} group list
  {name} group set spark-prod --leases 8 --comment "as many as the cluster runs"
  {name} group drop spark-prod

statements, with ; in between:
  {syntax}

LOCK TABLE holds its lock until UNLOCK TABLE. It also takes SHARED on the table's database, and for a
partition on its table. Hive's own LOCK TABLE takes only the one lock. UNLOCK TABLE frees only the locks of
the same user. Hive's own frees the locks of all users.

exit codes:
  0    all went well
  1    a statement was refused, or the lock store does not answer; check: an ERROR, data is unprotected
  2    the command or one of the statements is malformed
  75   a lock was not granted in time: the same may succeed later
  130  Ctrl-C; a waiting request leaves the queue"""


def _seconds(text: str) -> float:
    found_s = seconds(text)
    if found_s is None:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a time. Write seconds, as in 600, or 90s, 10m, 2h")
    if found_s > MAX_LEASE_S:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is longer than a year. Use a shorter time")
    return found_s


def _columns(text: str) -> dict[str, list[str]]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is not a dict. Write \"{{'dw.hourly': ['dt date', 'hr string']}}\""
        )
    return found


class _Version(argparse.Action):
    """Prints the version. Airflow's commands cannot use argparse's own action."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from airflow_hivelock.cli.output import print_text

        print_text(f"hivelock {version('airflow-hivelock')}")
        parser.exit()


class _ArgumentParser(argparse.ArgumentParser):
    """Prints the help at once. Otherwise Python fails at its end if the reader, for example head, has closed it."""

    def print_help(self, file: Any = None) -> None:
        from airflow_hivelock.cli.output import print_text

        print_text(self.format_help().rstrip())


_STORE_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--url",
        {
            "help": f"the lock store: zookeeper://zk1:2181,zk2:2181/hive_zookeeper_namespace; or set {URL}. Set {URL} if the URL "
            "has a password, because other users of the host can read the command in the list of processes"
        },
    ),
    (
        "--hive-site",
        {
            "metavar": "FILE",
            "help": "a hive-site.xml, as /etc/hive/conf/hive-site.xml. It supplies the settings that are not given as options: the "
            "lock store, the metastore, time-outs",
        },
    ),
    ("--metastore", {"metavar": "URI", "help": "the metastore that has the tables: thrift://metastore:9083"}),
)
_CONNECTION_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--conn-id", {"default": CONNECTION, "help": f"the connection to the lock store; by default {CONNECTION}"}),
)
_COMMON_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("-e", {"dest": "execute", "metavar": "STATEMENTS", "help": "the statements to run"}),
    ("-f", {"dest": "file", "metavar": "FILE", "help": "a file of statements to run"}),
    ("--output", {
        "choices": ("hive", "table", "json"),
        "default": "hive",
        "help": "hive: Hive's own output, and a table for statements that Hive does not have; json: for each statement a line "
        "with an array of objects",
    }),
    ("--database", {"default": "default", "help": "the database of tables that are named without one, until USE"}),
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
        "help": "a table without partitions that no metastore knows. A read of it takes SHARED. Repeat the option for each table",
    }),
    ("--locks", {
        "choices": ("stricter", "documented", "hive"),
        "help": "which rules EXPLAIN LOCKS follows if Hive's documents and real Hive differ; by default the connection's, or the "
        "stricter",
    }),
    ("--timeout", {
        "type": _seconds,
        "metavar": "TIME",
        "help": "how long LOCK waits for its locks: as in 90s, 10m or 2h, or in seconds. It also waits if the lock store stops "
        "answering meanwhile. By default it does not wait: it is refused, and the message names the holder. With a hive-site.xml that "
        "sets it, LOCK waits as long as Hive",
    }),
    ("--lease", {
        "type": _seconds,
        "default": MAX_LEASE_S,
        "metavar": "TIME",
        "help": "if the lock store frees expired leases: how long LOCK's lease lasts; by default as long as possible",
    }),
    ("--priority", {
        "type": int,
        "default": 1,
        "metavar": "N",
        "help": "the waiter with the larger priority goes first, within the lock store's limit; by default 1, as for all",
    }),
    ("--max-leases", {
        "type": int,
        "metavar": "N",
        "help": "LOCK waits until fewer leases of its group are held, of all users, unless the lock store has a limit of the "
        "group; needs --lease-group",
    }),
    ("--lease-group", {"default": "", "metavar": "NAME", "help": "the group of leases that LOCK's lease counts in"}),
    ("--leases", {"type": int, "metavar": "N", "help": "group set: how many leases the group may hold at a time"}),
    ("--weight", {
        "type": int,
        "metavar": "N",
        "help": "LOCK: how many leases of its group it counts for; group set: the default for requests that give no weight",
    }),
    ("--comment", {"metavar": "TEXT", "help": "group set: a text for people"}),
    ("--user", {"help": "the user who locks and unlocks; by default the logged-in user"}),
    ("--force", {"action": "store_true", "help": "UNLOCK also frees other users' leases; needs --reason"}),
    ("--reason", {"default": "", "help": "the reason for a force release, or why a host is gone; the audit trail keeps it"}),
    ("--version", {"action": _Version, "nargs": 0, "help": "print the version"}),
    ("--yes", {"action": "store_true", "help": "host-gone declares the host gone. Without --yes it only lists the work on that host"}),
    ("command", {
        "nargs": "?",
        "choices": ("capabilities", "check", "host-gone", "group"),
        "help": "capabilities: what the lock store promises; check: whether this Hive sees its locks, which of the named "
        "tables it does not protect, and what this Airflow lacks; host-gone: list the hosts that leases record work on, "
        "or declare that the named host is gone and its work has ended; group: list the groups of leases, or set or drop the "
        "limit of one",
    }),
    ("names", {"nargs": "*", "help": "tables for check, the host for host-gone, or list, set NAME or drop NAME for group"}),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``hivelock``.

    :return: the exit code.
    """
    parser = _parser("hivelock", _STORE_OPTIONS)
    args = parser.parse_args(argv)
    if not (args.url or args.hive_site or os.environ.get(URL)):
        parser.error(f"there is no lock store. Use --hive-site or --url, or set {URL}")

    from airflow_hivelock.cli import shell

    return shell.run(args, lambda: _open(args.url, args.hive_site, args.metastore))


def _open(url: str | None, hive_site: str | None, metastore: str | None) -> Opened:
    """Open the lock store of the arguments. A hive-site.xml has precedence over the environment."""
    from airflow_hivelock.cli.shell import Opened
    from airflow_hivelock.locks import connect
    from airflow_hivelock.locks.hive import lock_store
    from airflow_hivelock.locks.hive.catalog import connect_catalog
    from airflow_hivelock.locks.hive.lock_store import Sourced
    from airflow_hivelock.locks.hive.site import Site
    from airflow_hivelock.locks.url import check, secrets

    site = Site.read(hive_site) if hive_site else None
    if site and not url:
        sources = lock_store.of_site(site)
        url = lock_store.url(sources)
    else:
        source, url = ("--url", url) if url else (URL, os.environ[URL])
        check(url)
        if source != URL and secrets(url):
            log.warning(
                "%s has a password, and other users of this host can read it in the list of processes. Set %s instead",
                source,
                URL,
            )
        sources = (lock_store.common_fields(site) if site else {}) | lock_store.of_url(url, source)
    if metastore:
        sources["metastore_uri"] = Sourced("metastore_uri", metastore, "--metastore")
    uri = sources.get("metastore_uri")
    return Opened(
        connect(url),
        connect_catalog(uri.value) if uri else None,
        settings=(*sources.values(), *(lock_store.unused(site) if site else ())),
        site=site,
        timeout_s=lock_store.patience_s(sources) or 0.0,
    )


def main_in_airflow(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``python -m airflow_hivelock.cli``, for an Airflow that does not support commands of providers."""
    _in_airflow(_parser("python -m airflow_hivelock.cli", _CONNECTION_OPTIONS).parse_args(argv))


def get_cli_commands() -> list[CLICommand]:
    """Return the command ``airflow hivelock`` for Airflow's providers manager."""
    from airflow.cli.cli_config import ActionCommand, Arg

    return [
        ActionCommand(
            name="hivelock",
            help=_HELP,
            description=_DESCRIPTION,
            epilog=_epilog("airflow hivelock"),
            func=_in_airflow,
            args=[Arg((flag,), **options) for flag, options in (*_CONNECTION_OPTIONS, *_COMMON_OPTIONS)],  # type: ignore[no-untyped-call]
        )
    ]


def _in_airflow(args: argparse.Namespace) -> NoReturn:
    def connect() -> Opened:
        from airflow_hivelock import comms, compat
        from airflow_hivelock.cli.shell import Opened
        from airflow_hivelock.hooks import HiveLockHook
        from airflow_hivelock.locks.hive.coverage import unprotected
        from airflow_hivelock.ui.plugin import why_no_page

        comms.read_metadata()
        hook = HiveLockHook(args.conn_id)
        settings = hook.settings
        lacks = compat.lacks()
        if args.command == "check" and (why := why_no_page()):
            lacks.append(why)
        off = unprotected(
            f"tasks take no locks: concurrency is false in connection {args.conn_id!r}. Set it to true, or remove it"
        )
        return Opened(
            hook.manager(),
            hook.catalog(),
            settings=tuple(settings.sourced()),
            site=settings.site,
            timeout_s=(settings.lock_timeout_s if settings.site else None) or 0.0,
            locks=settings.locks,
            lacks=lacks,
            findings=() if settings.concurrency else (off,),
        )

    from airflow_hivelock.cli import shell

    sys.exit(shell.run(args, connect))


def _parser(name: str, where: tuple[tuple[str, dict[str, Any]], ...]) -> argparse.ArgumentParser:
    parser = _ArgumentParser(
        name, description=_DESCRIPTION, epilog=_epilog(name), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, options in (*where, *_COMMON_OPTIONS):
        parser.add_argument(flag, **options)
    return parser


def _epilog(name: str) -> str:
    return _EPILOG.format(name=name, syntax=SYNTAX.replace("\n", "\n  "))
