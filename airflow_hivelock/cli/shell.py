"""Runs the parsed command: executes statements, prints Hive's output, and returns an exit code."""

from __future__ import annotations

import enum
import logging
import os
import pwd
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hivelock.cli.output import print_result, shown
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.errors import HiveLockError, InvalidRequest, LockTimeout, Unsupported
from airflow_hivelock.locks.hive.catalog import MetastoreCatalog
from airflow_hivelock.locks.hive.coverage import Finding, check, findings_fail, unprotected
from airflow_hivelock.locks.model import Group, LeaseLimit, LockObject
from airflow_hivelock.locks.model.group import check_weight
from airflow_hivelock.locks.statements import requests
from airflow_hivelock.locks.statements.session import StatementSession
from airflow_hivelock.locks.statements.statement import Result

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from airflow_hivelock.locks.hive.catalog import Catalog
    from airflow_hivelock.locks.hive.lock_store import Sourced
    from airflow_hivelock.locks.hive.site import Site
    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.plan import Follows

    Connect = Callable[[], "Opened"]


_PLANS = "airflow_hivelock.locks.plan"
_WARN = [
    logging.getLogger(f"airflow_hivelock.{name}")
    for name in ("cli", "locks.backends", "locks.interrupted", "locks.manager", "locks.plan", "locks.statements")
]
_KAZOO, _SILENT = logging.getLogger("kazoo"), logging.NullHandler()
"""kazoo's log is silent here, because it has a line for each try. The final error has the cause and the next step."""

_ARGUMENT = re.compile(r"\((reason|timeout|user)\)")
_OPTIONS = {
    "lease_s": "--lease",
    "timeout_s": "--timeout",
    "max_leases": "--max-leases",
    "priority": "--priority",
    "weight": "--weight",
}
_ONLY_FOR = {"leases": "group", "comment": "group", "yes": "host-gone"}
"""By option, the only command that uses it."""
_UNPARTITIONED = re.compile(r"unpartitioned=\['([^']*)'\]")
_COLUMNS = re.compile(r"partition_columns=(\{.*?\})")


class Exit(enum.IntEnum):
    """The exit codes in the help. 75 is EX_TEMPFAIL of sysexits.h."""

    OK = 0
    REFUSED = 1
    MALFORMED = 2
    NOT_IN_TIME = 75
    INTERRUPTED = 130


@dataclass(frozen=True)
class Opened:
    """The opened lock store with its settings.

    :param settings: the settings of the lock store, each with its source.
    :param site: Hive's own settings, if there is a hive-site.xml.
    :param timeout_s: the longest wait of LOCK without ``--timeout``, in seconds.
    :param locks: the rules of EXPLAIN LOCKS without ``--locks``.
    :param lacks: the features that this Airflow lacks, with the consequences.
    :param findings: findings of ``check`` about Airflow.
    """

    manager: LockManager
    catalog: Catalog | None = None
    settings: Sequence[Sourced] = ()
    site: Site | None = None
    timeout_s: float = 0.0
    locks: Follows = "stricter"
    lacks: Sequence[str] = ()
    findings: Sequence[Finding] = ()


class _Warnings(logging.Handler):
    """Prints warnings to standard error: a silent store, a table that is locked as a whole, a password in the command."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = "WARNING" if record.name.startswith(_PLANS) else "hivelock"
        print(shown(f"{kind}: {_with_options(record.getMessage())}"), file=sys.stderr)

    def __enter__(self) -> None:
        for logger, handler in self._handlers():
            logger.addHandler(handler)
            logger.propagate = False  # Airflow's own log would print it again

    def __exit__(self, *exc: object) -> None:
        for logger, handler in self._handlers():
            logger.propagate = True
            logger.removeHandler(handler)

    def _handlers(self) -> list[tuple[logging.Logger, logging.Handler]]:
        return [*((logger, self) for logger in _WARN), (_KAZOO, _SILENT)]


def run(args: argparse.Namespace, connect: Connect) -> int:
    """Run the command *args* on the lock store that *connect* returns.

    :return: the exit code.
    """
    try:
        with _Warnings(logging.WARNING):
            return _run(args, connect)
    except BrokenPipeError:  # the reader of the output, for example head, has closed it
        return Exit.REFUSED


def _run(args: argparse.Namespace, connect: Connect) -> Exit:
    try:
        text = _text(args)
        try:
            opened = connect()
        except HiveLockError as error:
            # Its other words are about options of the URL, not of this command.
            code = _failed(error, str(error).replace("(hivelock_conn_id)", "(--conn-id)"))
            return Exit.REFUSED if args.command == "check" else code  # the configuration protects nothing
        with opened.manager:
            if args.command == "check":
                return _print_check(args, opened)
            if args.command:
                for result in _command(args, opened):
                    print_result(result, args.output)
                return Exit.OK
            return _run_statements(args, opened, text)
    except HiveLockError as error:
        return _failed(error)
    except KeyboardInterrupt:
        return _interrupted()


def _run_statements(args: argparse.Namespace, opened: Opened, text: str | None) -> Exit:
    """Run the statements of *text*. None means the statements that a user types."""
    for finding in check(opened.manager, opened.site) if opened.site else ():
        if finding.warning:
            print(shown(str(finding)), file=sys.stderr)
    session = StatementSession(
        opened.manager,
        user=args.user or _login(),
        actor=_actor(args.user),
        database=args.database,
        catalog=opened.catalog,
        unpartitioned=args.unpartitioned,
        partition_columns=args.partition_columns,
        locks=args.locks or opened.locks,
        timeout_s=opened.timeout_s if args.timeout is None else args.timeout,
        lease_s=args.lease,
        priority=args.priority,
        limit=_limit(args),
        force=args.force,
        reason=args.reason,
    )
    if text is None:
        return _interact(session, args.output)
    if not _execute(session, text, args.output):
        where = args.file or ("-e" if args.execute is not None else "standard input")
        raise InvalidRequest(f"there is no statement in {where}; --help lists the statements")
    return Exit.OK


def _limit(args: argparse.Namespace) -> LeaseLimit | None:
    given = {name: n for name, n in (("most", args.max_leases), ("weight", args.weight)) if n is not None}
    if given and not args.lease_group:
        raise InvalidRequest("--max-leases and --weight need --lease-group, the group of leases that is counted")
    if args.weight is not None:
        check_weight(args.weight, "how many leases of its group LOCK counts for")
    return LeaseLimit(args.lease_group, **given) if args.lease_group else None


def _text(args: argparse.Namespace) -> str | None:
    """Return the statements. None for a command, and if a user types the statements."""
    if sum(map(bool, (args.command, args.execute is not None, args.file))) > 1:
        raise InvalidRequest("use one of -e, -f, capabilities, check, host-gone or group")
    for name, command in _ONLY_FOR.items():
        value = getattr(args, name)
        if value is not None and value is not False and args.command != command:
            raise InvalidRequest(
                f"--{name} has no effect here: it is only for {command}. Remove it; --help lists the options"
            )
    if args.command == "capabilities" and args.names:
        raise InvalidRequest(f"{' '.join(args.names)!r} has no effect here: capabilities takes no names. Remove it")
    if args.user is not None and not args.user.strip():
        raise InvalidRequest("--user is empty. Name the user, or remove the option to use the logged-in user")
    if args.file:
        try:
            return Path(args.file).read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"{args.file} cannot be read: {error}") from error
    if args.execute is not None:
        return str(args.execute)
    if args.command:
        return None
    if sys.stdin is None:  # as with <&-
        return ""
    if sys.stdin.isatty():
        return None
    try:
        return sys.stdin.read()
    except ValueError as error:
        raise InvalidRequest(f"standard input cannot be read: {error}") from error


def _execute(session: StatementSession, text: str, output: str) -> int:
    """Run the statements of *text*, and return their number."""
    count = 0
    for result in session.run(text):
        count += 1
        print_result(result, output)
    return count


def _interact(session: StatementSession, output: str) -> Exit:
    import readline  # noqa: F401 - gives input() its line editing

    text = ""
    while True:
        try:
            text += input("    > " if text else f"hivelock ({session.database})> ") + "\n"
        except EOFError:
            print()
            return Exit.OK
        except KeyboardInterrupt:
            print()
            text = ""
            continue
        if text.strip().rstrip(";").lower() in ("quit", "exit"):
            return Exit.OK
        if text.rstrip().endswith(";"):
            try:
                _execute(session, text, output)
                print("OK", file=sys.stderr)
            except HiveLockError as error:
                _failed(error)
            except KeyboardInterrupt:
                _interrupted()
            text = ""


def _failed(error: HiveLockError, text: str = "") -> Exit:
    print(shown(f"hivelock: {text or _with_options(str(error))}"), file=sys.stderr)
    if isinstance(error, LockTimeout):
        return Exit.NOT_IN_TIME
    return Exit.MALFORMED if isinstance(error, InvalidRequest) else Exit.REFUSED


def _with_options(message: str) -> str:
    """Return *message* with this command's options in place of the library's arguments."""
    message = _COLUMNS.sub(r'--partition-columns "\1"', message)
    message = _UNPARTITIONED.sub(r"--unpartitioned \1", message)
    message = _ARGUMENT.sub(r"(--\1)", message)
    for name, option in _OPTIONS.items():
        message = message.replace(f"{name}=", f"{option}=")
    return message


def _interrupted() -> Exit:
    print(
        "hivelock: interrupted. A waiting request leaves the queue. SHOW LEASE * lists the locks of earlier statements",
        file=sys.stderr,
    )
    return Exit.INTERRUPTED


def _login() -> str:
    """Return the user's name from the system, because anyone can change the environment (``LOGNAME``)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, a user can have no name
        return f"uid {os.getuid()}"


def _actor(named: str | None) -> str:
    """Return the user for the audit trail: the *named* user, with the login if that is another user."""
    login = _login()
    return login if named in (None, login) else f"{named} (logged in as {login} on {socket.gethostname()})"


def _command(args: argparse.Namespace, opened: Opened) -> Iterator[Result]:
    if args.command == "capabilities":
        yield _capabilities(opened.manager.capabilities)
    elif args.command == "group":
        yield _group(args, opened.manager)
    else:
        yield from _host_gone(args, opened.manager)


def _group(args: argparse.Namespace, manager: LockManager) -> Result:
    """List the groups, or set or drop the limit of one."""
    user = _actor(args.user)
    sets_nothing = args.leases is args.weight is args.comment is None
    match args.names:
        case [] | ["list"] if sets_nothing:
            return requests.show_groups(manager.groups())
        case ["set", name] if args.leases is not None:
            given = {"weight": args.weight, "comment": args.comment}
            named = {field: value for field, value in given.items() if value is not None}
            kept = [field for field in given if field not in named]
            return requests.set_group(manager, Group(name, args.leases, **named), kept, user, args.reason)
        case ["drop", name] if sets_nothing:
            return requests.drop_group(manager, name, user, args.reason)
    raise InvalidRequest("write group list, group set NAME --leases N, or group drop NAME")


def _host_gone(args: argparse.Namespace, manager: LockManager) -> Iterator[Result]:
    try:
        from airflow_hivelock.cli import hosts
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"host-gone needs Airflow, whose tasks record their hosts ({error}). Run it where Airflow is installed"
        ) from error
    return hosts.host_gone(args.names, manager, declare=args.yes, reason=args.reason, user=_actor(args.user))


def _capabilities(capabilities: Capabilities) -> Result:
    """Return the capabilities of the lock store, with their meanings from the class's docstring."""
    meanings = re.findall(r":param (\w+): (.*?)(?=\s+:param|\s*\Z)", Capabilities.__doc__ or "", re.DOTALL)
    rows = tuple((name, getattr(capabilities, name), " ".join(meaning.split())) for name, meaning in meanings)
    text = "\n".join(f"{'yes' if promised else 'no ':3}  {name:12}  {meaning}" for name, promised, meaning in rows)
    return Result(("capability", "promised", "meaning"), rows, text)


def _print_check(args: argparse.Namespace, opened: Opened) -> Exit:
    """Print the settings and then the findings. A server that does not answer leaves at least the settings."""
    print_result(_settings(opened.settings), args.output)
    findings = _check(opened, args.names)
    print_result(_findings(findings, opened.lacks), args.output)
    return Exit.REFUSED if findings_fail(findings) else Exit.OK


def _check(opened: Opened, tables: Sequence[str]) -> list[Finding]:
    """Check the protection of data, from Hive's own file and the answers of Hive's servers."""
    manager, catalog, named = opened.manager, opened.catalog, [LockObject.parse(table) for table in tables]
    metastore = catalog if isinstance(catalog, MetastoreCatalog) and not manager.capabilities.expires else None
    # If a server of Hive can be asked too, the file gets a check of its own.
    site = opened.site if metastore or hasattr(manager.backend, "settings") else None
    findings = [*opened.findings, *(check(manager, site) if site else ())]
    hive = metastore or (None if site else opened.site)
    try:
        return findings + check(manager, hive, named, catalog, namespaces=site is None)
    except InvalidRequest:
        raise
    except HiveLockError as error:
        if metastore is None:
            raise
        text = f"the metastore did not say where Hive locks, so the protection cannot be checked: {error}"
        return [*findings, unprotected(text), *(check(manager) if site is None else ())]


def _findings(findings: Sequence[Finding], lacks: Sequence[str]) -> Result:
    rows = [(finding.kind, finding.text) for finding in findings] + [("lacks", text) for text in lacks]
    text = "\n".join([*map(str, findings), *(f"lacks: {text}" for text in lacks)])
    return Result(("finding", "text"), tuple(rows), text)


def _settings(settings: Sequence[Sourced]) -> Result:
    rows = tuple((each.name, each.value, each.source) for each in settings)
    text = "\n".join(f"{name}={value}  ({source})" for name, value, source in rows)
    return Result(("setting", "value", "source"), rows, text)
