"""The locks of dbt's nodes, from the manifest that dbt writes. It is only read: dbt is not imported.

===========================  ====================================================================
a node                       locks
===========================  ====================================================================
model, seed, snapshot        its relation EXCLUSIVE, and the relations that it reads SHARED
ephemeral model              nothing: dbt puts its SQL into its readers, so they read what it reads
view                         the same as a table; its readers also read what it reads
test                         the relations that it reads SHARED, its stored failures EXCLUSIVE
source                       itself SHARED, because ``dbt source freshness`` reads it
===========================  ====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.model import LockObject
from airflow_hivelock.locks.model.object import CATALOG

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

DbtCommand = Literal["run", "test", "build"]
"""What runs a node. ``run`` also means ``dbt seed``, ``dbt snapshot`` and ``dbt source freshness``."""

VERSIONS = ("v10", "v11", "v12")
"""The versions of the manifest's schema that dbt 1.6 to 1.12 write."""

_SCHEMA = re.compile(r"https://schemas\.getdbt\.com/dbt/manifest/(v\d+)\.json", re.ASCII)
_READ_THROUGH = ("ephemeral", "view")
_IN_THE_MANIFEST = ("model", "seed", "snapshot", "source")
_ANEW = "Write the manifest anew with 'dbt parse'"


@dataclass(frozen=True)
class DbtNode:
    """A node or source of a manifest.

    :param kind: dbt's ``resource_type``.
    :param relation: its table or view; empty if it has none.
    :param parents: the ids of the nodes that it depends on.
    :param read_through: whether its readers read what it reads.
    :param unpartitioned: whether dbt creates its relation without partitions.
    """

    kind: str
    relation: str
    parents: tuple[str, ...]
    read_through: bool
    unpartitioned: bool


def locks_of_manifest(
    manifest: Mapping[str, Any] | str | os.PathLike[str], *, command: DbtCommand = "run"
) -> dict[str, dict[str, list[str]]]:
    """The arguments of :func:`.locked` for each node and source of a dbt project, by ``unique_id``.

    They are ``reads``, ``writes`` and ``unpartitioned``: the relations to read that dbt creates without partitions. A
    node that needs no locks has ``{}``, for example an ephemeral model.

    :param manifest: the path of ``target/manifest.json``, or its content. The names in it are those of one target.
    :param command: ``"run"`` for the task that builds a node, ``"test"`` for the task that runs the tests of a node,
        ``"build"`` for a task that does both.
    :raises InvalidRequest: no manifest that can be read, or a relation that Hive does not have. The message has the node.
    """
    if command not in get_args(DbtCommand):
        raise InvalidRequest(f"command={command!r}; use one of {', '.join(get_args(DbtCommand))}")
    nodes = _nodes(manifest)
    tests: dict[str, list[str]] = {}
    for unique_id, node in nodes.items():
        for parent in node.parents if node.kind == "test" else ():
            tests.setdefault(parent, []).append(unique_id)
    found = {}
    for unique_id, node in nodes.items():
        builds = command != "test" and node.relation
        own = [unique_id] if builds or node.kind == "test" else []
        found[unique_id] = _locks([*own, *(tests.get(unique_id, ()) if command != "run" else ())], nodes)
    return found


def _locks(running: Iterable[str], nodes: Mapping[str, DbtNode]) -> dict[str, list[str]]:
    """The locks of a task that runs these nodes."""
    read: dict[str, DbtNode] = {}
    writes: set[str] = set()
    for unique_id in running:
        node = nodes[unique_id]
        read |= _read_by(unique_id, nodes)
        if node.kind == "source":
            read[unique_id] = node
        else:
            writes.add(node.relation)
    reads = {node.relation: node for node in read.values() if node.relation not in ("", *writes)}
    writes.discard("")
    if not reads and not writes:
        return {}
    unpartitioned = sorted(name for name, node in reads.items() if node.unpartitioned)
    return {"reads": sorted(reads), "writes": sorted(writes), "unpartitioned": unpartitioned}


def _read_by(unique_id: str, nodes: Mapping[str, DbtNode]) -> dict[str, DbtNode]:
    """The nodes that this one reads, also through views and ephemeral models."""
    found: dict[str, DbtNode] = {}
    unread = [unique_id]
    while unread:
        child = unread.pop()
        for parent in nodes[child].parents:
            if parent in found:
                continue
            if parent in nodes:
                found[parent] = nodes[parent]
                if nodes[parent].read_through:
                    unread.append(parent)
            elif parent.partition(".")[0] in _IN_THE_MANIFEST:
                raise InvalidRequest(f"{child} depends on {parent}, which the manifest does not have. {_ANEW}")
    return found


def _nodes(manifest: Mapping[str, Any] | str | os.PathLike[str]) -> dict[str, DbtNode]:
    if not isinstance(manifest, Mapping):
        try:
            manifest = validate.load(Path(manifest).read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise InvalidRequest(f"{manifest} is not a manifest of dbt: {error}. {_ANEW}") from error
    schema = _mapping(manifest, "metadata").get("dbt_schema_version")
    version = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if version is None or version[1] not in VERSIONS:
        raise InvalidRequest(
            f"The manifest's dbt_schema_version is {schema!r:.200}, but only {', '.join(VERSIONS)} can be read. Write the "
            "manifest with dbt 1.6 to 1.12, or look for a later version of airflow-hivelock"
        )
    given = {**_mapping(manifest, "nodes"), **_mapping(manifest, "sources")}
    return {unique_id: _node(unique_id, _mapping(given, unique_id)) for unique_id in given}


def _node(unique_id: str, given: Mapping[str, Any]) -> DbtNode:
    config = _mapping(given, "config")
    parents = _mapping(given, "depends_on").get("nodes") or []
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise InvalidRequest(f"{unique_id}: depends_on is not a list of nodes. {_ANEW}")
    view = config.get("materialized") == "view"
    kind = str(given.get("resource_type"))
    return DbtNode(
        kind=kind,
        relation=_relation(unique_id, given) if given.get("relation_name") else "",
        parents=tuple(parents),
        read_through=config.get("materialized") in _READ_THROUGH,
        unpartitioned=view or (kind != "source" and not config.get("partition_by")),
    )


def _relation(unique_id: str, given: Mapping[str, Any]) -> str:
    """The name of the node's table, as Hive keeps it."""
    names = [given.get("database") or "", given.get("schema"), given.get("alias") or given.get("identifier")]
    database, schema, table = (name.strip("`") if isinstance(name, str) else "" for name in names)
    if not table:
        raise InvalidRequest(f"{unique_id} has a relation without a name. {_ANEW}")
    if database.lower() not in ("", schema.lower(), CATALOG):  # dbt-spark allows the schema in place of the database
        raise InvalidRequest(
            f"{unique_id}: {database}.{schema}.{table} is in the catalog {database!r}, which Hive does not know, so Hive's "
            "locks do not protect it. Use a target whose database is Hive's own catalog"
        )
    try:
        return str(LockObject(schema, table))
    except InvalidRequest as error:
        raise InvalidRequest(f"{unique_id}: {error}") from error


def _mapping(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidRequest(f"{name!r:.200} of the manifest is {type(found).__name__}, not an object. {_ANEW}")
    return found
