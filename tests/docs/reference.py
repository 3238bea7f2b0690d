"""``python -m tests.docs.reference`` writes docs/reference.md from what the code says of itself."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow_hivelock import (
    BackfillsLast,
    HiveForceUnlockOperator,
    HiveLockedSparkSubmitOperator,
    HiveLockHook,
    HiveLockMixin,
    HiveLockOperator,
    HiveLockSensor,
    HiveUnlockOperator,
    hive_lock,
    hold,
    locked,
    locks,
    locks_of_manifest,
    metrics,
    release_locks,
)
from airflow_hivelock.cli import command as cli
from airflow_hivelock.cli import shell
from airflow_hivelock.get_provider_info import get_provider_info
from airflow_hivelock.locks import errors, plan, reservations
from airflow_hivelock.locks.backend import Capabilities
from airflow_hivelock.locks.backends.hiveserver2 import HiveServer2Backend
from airflow_hivelock.locks.backends.memory import MemoryBackend
from airflow_hivelock.locks.backends.metastore import MetastoreBackend
from airflow_hivelock.locks.backends.zookeeper import ZooKeeperBackend
from airflow_hivelock.locks.groups import ManagesGroups
from airflow_hivelock.locks.hive import coverage
from airflow_hivelock.locks.statements.statement import SYNTAX
from airflow_hivelock.operators.acquiring import AcquiresLocks
from airflow_hivelock.operators.base import NamesLocks
from airflow_hivelock.operators.taskflow import hivelock_task
from airflow_hivelock.settings import Settings
from airflow_hivelock.spark import Guard, HiveLocks, enable_hive_locks
from airflow_hivelock.triggers import keeper
from tests.docs.blocks import PROJECT
from tests.docs.markup import Doc, parse, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PAGE = PROJECT / "docs" / "reference.md"

HEAD = """\
# Reference

`make reference` writes this page from the docstrings, so change the docstrings instead. [The guides](README.md) show how to use
the package.
"""

NAMES = "Arguments of each task that names locks"
WAITS = "Arguments of each task that acquires locks"


def reference() -> str:
    """The page."""
    parts = [HEAD, *_airflow(), *_connection(), *_manager(), *_command_line(), *_metrics()]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _airflow() -> Iterator[str]:
    yield "## Operators"
    yield from _base(NAMES, NamesLocks)
    yield from _base(WAITS, AcquiresLocks)
    yield from _kind(HiveLockOperator, NAMES, WAITS)
    yield from _kind(HiveLockedSparkSubmitOperator, NAMES, WAITS, HiveLockMixin.__name__)
    yield from _function(locked)
    yield from _function(hivelock_task)
    yield from _kind(HiveLockMixin, NAMES, WAITS)
    yield from _methods(HiveLockMixin, ["use_lease", "reconnects", "record_application", "work_is_over"])
    yield from _kind(HiveUnlockOperator)
    yield from _function(hive_lock)
    yield from _function(hold)
    yield from _function(locks_of_manifest)
    yield from _kind(HiveForceUnlockOperator)
    yield f"### BackfillsLast\n\n{parse(BackfillsLast.__doc__).text}"
    yield "## Sensor"
    yield from _kind(HiveLockSensor, NAMES)
    yield "## Callback"
    yield from _function(release_locks)
    yield "## Asset"
    yield f"### SUSPECT_LEASES\n\n`airflow_hivelock.triggers.keeper.SUSPECT_LEASES`. {parse(keeper.__doc__).text}"
    yield from _function(keeper.suspect_leases)


def _connection() -> Iterator[str]:
    summary, _, fields = parse(HiveLockHook.__doc__).text.partition("\n\n")
    yield f"## Connection\n\n### The connection's fields and extra\n\n{fields}"
    form = get_provider_info()["connection-types"][0]["conn-fields"]
    yield "Airflow's form for connections has these fields of the extra:"
    yield table(
        ["field", "label", "help"],
        [[f"`{name}`", field["label"], field["description"]] for name, field in form.items()],
    )
    yield "`HiveLockHook.settings` returns them as a `Settings`:"
    yield from _dataclass(Settings)
    yield from _function(locks.connect)
    yield from _promises()
    yield f"### HiveLockHook\n\n{summary}"
    yield from _methods(HiveLockHook)


def _promises() -> Iterator[str]:
    """The promises of each store. SQLite is connected for this; the other backends have a constant."""
    with TemporaryDirectory() as directory, locks.connect(f"sqlite:///{directory}/leases.db") as manager:
        database = manager.capabilities
    stores = {
        "zookeeper": ZooKeeperBackend.capabilities,
        "metastore": MetastoreBackend.capabilities,
        "postgresql, mysql, sqlite": database,
        "hiveserver2": HiveServer2Backend.capabilities,
        "memory": MemoryBackend.capabilities,
    }
    yield (
        "### What each lock store promises\n\n`hivelock capabilities` prints this for your lock store. [Capabilities](#capabilities) "
        "explains each promise."
    )
    rows = [
        [f"`{field.name}`", *("yes" if getattr(store, field.name) else "no" for store in stores.values())]
        for field in dataclasses.fields(Capabilities)
    ]
    yield table(["promise", *stores], rows)
    yield "With `expiry=frees`, a database has `expires`. A HiveServer2 whose Hive locks in its metastore has no `parents`."


def _manager() -> Iterator[str]:
    yield "## Lock manager"
    yield from _class(locks.LockManager)
    yield from _class(locks.PendingLease)
    yield from _class(locks.PendingLook)
    yield from _function(reservations.reserve)
    yield from _class(locks.HiveLeases)
    yield from _class(Guard)
    yield from _function(enable_hive_locks)
    yield from _class(HiveLocks)
    yield "## Locks of statements"
    for function in (plan.plan_statements, plan.plan, plan.explain, coverage.check):
        yield from _function(function)
    yield "## Values"
    values = "LockMode LockObject Lock LockRequest LeaseLimit Group GroupUse Lease Work Holder Waiter WaitsFor Blocker Blocked NeedsSlot Silent Tenure ForcedRelease HiveLease"
    for value in (*(getattr(locks, name) for name in values.split()), Capabilities, coverage.Finding):
        yield f"### {value.__name__}"
        yield from _dataclass(value)
    yield f"## Errors\n\n{parse(errors.__doc__).text}"


def _command_line() -> Iterator[str]:
    yield f"## Command line\n\n{cli._DESCRIPTION} `airflow hivelock` takes `--conn-id` for `--url` and `--metastore`."
    given = (*cli._STORE_OPTIONS, *cli._CONNECTION_OPTIONS, *cli._COMMON_OPTIONS)
    yield table(
        ["argument", "meaning"],
        [[f"`{_argument(flag, options)}`", " ".join(options["help"].split())] for flag, options in given],
    )
    yield f"Statements, with `;` in between:\n\n```text\n{SYNTAX}\n```"
    codes = cli._EPILOG.partition("exit codes:\n")[2].splitlines()
    rows = [row.strip().partition(" ") for row in codes]
    yield table(["exit code", "means"], [[code, " ".join(text.split())] for code, _, text in rows])
    assert [int(code) for code, _, _ in rows] == list(shell.Exit), "the help's exit codes are not the program's"


def _metrics() -> Iterator[str]:
    yield f"## Metrics\n\n{parse(metrics.__doc__).text}"


def _argument(flag: str, options: dict[str, Any]) -> str:
    if not flag.startswith("-"):
        return "|".join(options.get("choices", (flag,)))
    if options.get("action") == "store_true" or options.get("nargs") == 0:
        return flag
    probe = argparse.ArgumentParser(add_help=False).add_argument(flag, **options)
    return f"{flag} {probe.metavar or '|'.join(map(str, probe.choices or ())) or probe.dest.upper()}"


def _base(title: str, kind: type) -> Iterator[str]:
    yield f"### {title}"
    yield _arguments(kind, parse(kind.__doc__).params)


def _kind(kind: type, *also: str) -> Iterator[str]:
    """An operator or the like: its own arguments, and where those are that it shares."""
    doc = parse(kind.__doc__)
    yield f"### {kind.__name__}\n\n{doc.text}"
    yield _arguments(kind, doc.params)
    if also:
        links = [f"[{title}](#{_slug(title)})" for title in also]
        yield "More arguments: " + "; ".join(links) + "."


def _class(kind: type) -> Iterator[str]:
    doc = parse(kind.__doc__)
    yield f"### {kind.__name__}\n\n{doc.text}"
    yield _fields(doc)
    yield from _methods(kind)


def _methods(kind: type, names: Iterable[str] = ()) -> Iterator[str]:
    kinds = [one for one in kind.__mro__ if one in (kind, ManagesGroups) or one.__name__.startswith("_")]
    for name in names or [name for one in kinds for name in vars(one) if not name.startswith("_")]:
        member = inspect.getattr_static(kind, name)
        function = member
        for wrapped in ("__func__", "fget", "func"):
            function = getattr(function, wrapped, function)
        if inspect.isfunction(function):
            called = not isinstance(member, property | cached_property)
            yield from _function(function, f"{kind.__name__}.{name}", "#### ", called)


def _function(function: Callable[..., Any], name: str = "", level: str = "### ", call: bool = True) -> Iterator[str]:
    doc = parse(function.__doc__)
    shown = name or function.__name__
    yield f"{level}{shown}"
    if call:
        yield f"`{shown.rpartition('.')[2]}{_signature(function)}`"
    yield doc.text
    yield _fields(doc)


def _fields(doc: Doc) -> str:
    rows = [f"- `{each}`: {text}" for each, text in doc.params.items()]
    rows += [f"- returns {doc.returns}"] * bool(doc.returns)
    rows += [f"- raises `{error}`: {text}" for error, text in doc.raises]
    return "\n".join(rows)


def _dataclass(kind: type) -> Iterator[str]:
    doc = parse(kind.__doc__)
    yield doc.text
    if dataclasses.is_dataclass(kind):
        fields = {field.name: doc.params.get(field.name, "") for field in dataclasses.fields(kind)}
        yield table(
            ["field", "type", "meaning"],
            [[f"`{name}`", f"`{_type(kind, name)}`", text] for name, text in fields.items()],
        )
    else:
        yield ", ".join(f"`{member.name}`" for member in kind)  # type: ignore[attr-defined]


def _arguments(kind: type, params: dict[str, str]) -> str:
    """A table of the documented arguments, with their defaults."""
    signature = inspect.signature(kind.__init__).parameters if "__init__" in vars(kind) else {}  # type: ignore[misc]
    for name, parameter in signature.items():
        assert name in params or name in ("self", "hivelock_conn_id") or parameter.kind is parameter.VAR_KEYWORD, (
            f"{kind.__name__} does not say what {name} is"
        )
    rows = []
    for name, text in params.items():
        default = signature[name].default
        rows.append([f"`{name}`", "" if default is inspect.Parameter.empty else f"`{_value(default)}`", text])
    return table(["argument", "default", "meaning"], rows) if rows else ""


def _value(value: Any) -> str:
    """As one writes it."""
    text = repr(value) if not hasattr(value, "total_seconds") else f"timedelta(seconds={value.total_seconds():g})"
    return text.replace("HiveLockHook.default_conn_name", repr(HiveLockHook.default_conn_name))


def _type(kind: type, name: str) -> str:
    return str(kind.__annotations__[name])


def _signature(function: Callable[..., Any]) -> str:
    text = re.sub(r"\((self|cls)(, )?", "(", str(inspect.signature(function)))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
