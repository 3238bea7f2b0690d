"""The locks of dbt's nodes, from a manifest."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hivelock import locks_of_manifest
from airflow_hivelock.locks import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path


def schema(version: str = "v12") -> dict[str, Any]:
    return {"dbt_schema_version": f"https://schemas.getdbt.com/dbt/manifest/{version}.json"}


def node(name: str, materialized: str = "table", reads: tuple[str, ...] = (), **given: Any) -> tuple[str, Any]:
    """A node of dbt by its id, as a manifest has it."""
    kind = {"seed": "seed", "snapshot": "snapshot", "test": "test"}.get(materialized, "model")
    has_relation = materialized not in ("ephemeral", "test")
    return f"{kind}.shop.{name}", {
        "resource_type": kind,
        "database": None,
        "schema": "dw",
        "alias": name,
        "relation_name": f"dw.{name}" if has_relation else None,
        "config": {"materialized": materialized, "partition_by": given.pop("partition_by", None)},
        "depends_on": {"macros": [], "nodes": list(reads)},
        **given,
    }


FLIGHTS = "source.shop.raw.flights"
SOURCE: dict[str, Any] = {
    "resource_type": "source",
    "database": None,
    "schema": "raw",
    "identifier": "flights",
    "relation_name": "`raw`.`flights`",
    "config": {"enabled": True},
}


def manifest(*nodes: tuple[str, Any], **given: Any) -> dict[str, Any]:
    return {"metadata": schema(), "nodes": dict(nodes), "sources": {FLIGHTS: SOURCE}, **given}


def shown(found: dict[str, list[str]]) -> str:
    """Reads, then writes with ``!``; a ``°`` follows what is read and has no partitions."""
    read = [f"{name}°" if name in found["unpartitioned"] else name for name in found.get("reads", ())]
    return " ".join([*read, *(f"{name}!" for name in found.get("writes", ()))])


CASES: dict[str, tuple[tuple[str, ...], list[tuple[str, Any]], str]] = {
    "a table": ((FLIGHTS,), [], "raw.flights dw.it!"),
    "a seed that is read": (("seed.shop.planes",), [node("planes", "seed")], "dw.planes° dw.it!"),
    "a snapshot that is read": (("snapshot.shop.s",), [node("s", "snapshot", (FLIGHTS,))], "dw.s° dw.it!"),
    "an alias": (("model.shop.m",), [node("m", alias="M_2")], "dw.m_2° dw.it!"),
    "a version": (("model.shop.m.v2",), [("model.shop.m.v2", node("m", alias="m_v2")[1])], "dw.m_v2° dw.it!"),
    "partitions": (("model.shop.m",), [node("m", partition_by=["dt"])], "dw.m dw.it!"),
    "names in quotes": (("model.shop.m",), [node("m", schema="`DW`", alias="`m`")], "dw.m° dw.it!"),
    "the database is the schema": (("model.shop.m",), [node("m", database="dw")], "dw.m° dw.it!"),
    "Spark's catalog": (("model.shop.m",), [node("m", database="spark_catalog")], "dw.m° dw.it!"),
    "an ephemeral model": (("model.shop.e",), [node("e", "ephemeral", (FLIGHTS,))], "raw.flights dw.it!"),
    "a chain of ephemeral models": (
        ("model.shop.e",),
        [
            node("e", "ephemeral", ("model.shop.f", "seed.shop.planes")),
            node("f", "ephemeral", (FLIGHTS,)),
            node("planes", "seed"),
        ],
        "dw.planes° raw.flights dw.it!",
    ),
    "a view": (("model.shop.v",), [node("v", "view", (FLIGHTS,), partition_by="dt")], "dw.v° raw.flights dw.it!"),
    "a table behind a table": (
        ("model.shop.m",),
        [node("m", "incremental", (FLIGHTS,))],
        "dw.m° dw.it!",
    ),
    "itself": (("model.shop.it", FLIGHTS), [], "raw.flights dw.it!"),
    "a metric and a function": (("metric.shop.m", "function.shop.f", FLIGHTS), [], "raw.flights dw.it!"),
}


@pytest.mark.parametrize(("reads", "others", "expected"), CASES.values(), ids=CASES)
def test_a_model_locks_what_it_reads_and_writes(
    reads: tuple[str, ...], others: list[tuple[str, Any]], expected: str
) -> None:
    assert shown(locks_of_manifest(manifest(node("it", reads=reads), *others))["model.shop.it"]) == expected


NODES = (
    node("e", "ephemeral", (FLIGHTS,)),
    node("m", "incremental", ("model.shop.e",)),
    node("m_is_whole", "test", ("model.shop.m",)),
    node("m_has_planes", "test", ("model.shop.m", "seed.shop.planes")),
    node("planes", "seed"),
    node("kept", "test", ("model.shop.e",), schema="audit", relation_name="audit.kept"),
)
COMMANDS = {
    ("model.shop.m", "run"): "raw.flights dw.m!",
    ("model.shop.m", "test"): "dw.m° dw.planes°",
    ("model.shop.m", "build"): "dw.planes° raw.flights dw.m!",
    ("seed.shop.planes", "run"): "dw.planes!",
    ("seed.shop.planes", "test"): "dw.m° dw.planes°",
    ("model.shop.e", "run"): "",
    ("model.shop.e", "test"): "raw.flights audit.kept!",
    ("test.shop.m_is_whole", "run"): "dw.m°",
    ("test.shop.m_is_whole", "test"): "dw.m°",
    ("source.shop.raw.flights", "run"): "raw.flights",
    ("source.shop.raw.flights", "test"): "",
}


@pytest.mark.parametrize(("unique_id", "command"), COMMANDS)
def test_a_command_locks_what_it_runs(unique_id: str, command: Any) -> None:
    found = locks_of_manifest(manifest(*NODES), command=command)[unique_id]
    assert shown(found) == COMMANDS[unique_id, command]
    assert bool(found) == bool(COMMANDS[unique_id, command]), "no locks are an empty dict"


def test_a_disabled_node_has_no_locks() -> None:
    disabled = dict([node("old")])
    assert "model.shop.old" not in locks_of_manifest(manifest(disabled={name: [it] for name, it in disabled.items()}))


@pytest.mark.parametrize("version", ["v10", "v11", "v12"])
def test_a_file_is_read(version: str, tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(manifest(node("it")) | {"metadata": schema(version)}))
    assert locks_of_manifest(file) == locks_of_manifest(str(file)) == locks_of_manifest(manifest(node("it")))


REFUSED: dict[str, tuple[Any, str]] = {
    "a later schema": (
        {"metadata": schema("v20")},
        "dbt_schema_version is 'https.*v20.json', but only v10, v11, v12.*dbt 1.6",
    ),
    "another schema": (
        {"metadata": {"dbt_schema_version": "https://schemas.getdbt.com/dbt/manifest/v12.json/v20"}},
        "v12.json/v20', but only v10",
    ),
    "no schema": ({}, "dbt_schema_version is None"),
    "another catalog": (
        manifest(node("it", database="lake")),
        "model.shop.it: lake.dw.it is in the catalog 'lake', which Hive does not",
    ),
    "no table's name": (manifest(node("my-table")), "model.shop.my-table: 'dw.my-table': 'my-table' is not a table"),
    "a partition in an alias": (manifest(node("it", alias="t/dt=1")), "'t/dt=1' is not a table"),
    "a database in an alias": (manifest(node("it", schema="x.y")), "'x.y' is not a database"),
    "no name": (manifest(node("it", alias=None)), "model.shop.it has a relation without a name.*dbt parse"),
    "no schema of a relation": (manifest(node("it", schema=None)), "model.shop.it: .*is not a database"),
    "a number for a name": (manifest(node("it", alias=5)), "model.shop.it has a relation without a name"),
    "a missing parent": (
        manifest(node("it", "table", ("model.shop.gone",))),
        "model.shop.it depends on model.shop.gone, which the manifest does not have.*dbt parse",
    ),
    "nodes in a list": ({"metadata": schema(), "nodes": [1]}, "'nodes' of the manifest is list, not an object"),
    "a node that is a text": (
        {"metadata": schema(), "nodes": {"model.a.b": "x"}},
        "'model.a.b' of the manifest is str",
    ),
    "parents in a text": (
        manifest(node("it", depends_on={"nodes": "model.shop.it"})),
        "model.shop.it: depends_on is not",
    ),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_the_next_step(given: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        locks_of_manifest(given)
    assert re.search(message, str(refused.value))


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_manifest_is_refused(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"manifest\.json is not a manifest of dbt.* Write the manifest anew"):
        locks_of_manifest(file)


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="command='seed'; use one of run, test, build"):
        locks_of_manifest(manifest(), command="seed")  # type: ignore[arg-type]


def test_a_circle_and_a_long_chain_end() -> None:
    chain = [node(f"e{n}", "ephemeral", (f"model.shop.e{n + 1}",)) for n in range(5_000)]
    circle = node("e5000", "ephemeral", ("model.shop.e0", FLIGHTS))
    found = locks_of_manifest(manifest(node("it", "table", ("model.shop.e0",)), *chain, circle))
    assert shown(found["model.shop.it"]) == "raw.flights dw.it!"
