"""Settings and statements in the documents are read by what reads them."""

from __future__ import annotations

import json
import re
from configparser import ConfigParser
from typing import TYPE_CHECKING

import pytest
import yaml
from airflow.configuration import conf
from airflow.models import Connection
from airflow.sdk._shared.secrets_masker import SecretsMasker

from airflow_hivelock import HiveLockHook, metrics
from airflow_hivelock.locks.hive import properties
from airflow_hivelock.locks.plan import plan_statements
from airflow_hivelock.locks.statements.parse import parse
from airflow_hivelock.locks.statements.statement import SYNTAX
from airflow_hivelock.work.pod import POD_UID
from tests.docs import connections
from tests.docs.blocks import PROJECT, Block, Kind, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS = {"sqlite": "/var/lib/airflow/leases.db"}
OURS = tuple({line.split()[0] for line in SYNTAX.splitlines()})
"""The words that our statements begin with."""


def of(kind: Kind) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", blocks(kind), ids=str)


@pytest.mark.integration
@of(Kind.JSON)
def test_a_connection_is_understood(block: Block, here: Callable[[str], str]) -> None:
    """A whole connection, as Airflow reads it from JSON, or an extra."""
    data = json.loads(re.sub("/etc/hive/conf", lambda found: here(found[0]), block.text))
    if "conn_type" not in data:
        host = HOSTS.get(data.get("backend"), "zk1:2181,zk2:2181,zk3:2181")
        data = {"conn_type": "hivelock", "host": host, "extra": data}
    connections.read(Connection.from_json(json.dumps(data)), here)


@of(Kind.INI)
def test_airflow_has_these_settings(block: Block) -> None:
    parser = ConfigParser()
    parser.read_string(block.text)
    known = conf.configuration_description
    for section in parser.sections():
        for option, value in parser[section].items():
            kind = known[section]["options"][option]["type"]
            {"integer": int, "float": float, "boolean": bool}.get(kind, str)(value)


@of(Kind.SQL)
def test_statements_are_understood(block: Block) -> None:
    if block.text.upper().startswith(OURS) and not block.text.upper().startswith("LOCK INFORMATION"):
        assert parse(block.text)
    else:
        reads, writes = plan_statements(block.text)
        assert reads or writes


@of(Kind.ALERTS)
def test_alerts_are_on_metrics_that_there_are(block: Block) -> None:
    """As Prometheus reads them, by the names that statsd_exporter makes."""
    known = {f"airflow_{name.replace('.', '_')}" for name in re.findall(r"``(hivelock[\w.]+)``", metrics.__doc__ or "")}
    rules = [rule for group in yaml.safe_load(block.text)["groups"] for rule in group["rules"]]
    assert rules
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        names = set(re.findall(r"airflow_hivelock\w+", rule["expr"]))
        assert names, rule
        assert names <= known


@of(Kind.KUBERNETES)
def test_pods_and_roles_say_what_is_asked_for(block: Block) -> None:
    match yaml.safe_load(block.text):
        case {"kind": "Role", "rules": rules}:
            assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
        case {"kind": "RoleBinding", "roleRef": role}:
            assert any(f"name: {role['name']}," in other.text for other in blocks(Kind.KUBERNETES) if other != block)
        case {"images": {"airflow": image}, "secret": [connection]}:
            assert image.keys() == {"repository", "tag"}
            assert connection.keys() == {"envName", "secretName", "secretKey"}
            assert connection["envName"] == "AIRFLOW_CONN_" + HiveLockHook.default_conn_name.upper()
        case {"env": [variable]}:
            assert variable == {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
        case other:
            pytest.fail(f"{block}: {other}")


def test_every_property_of_a_hive_site_is_in_the_tables() -> None:
    text = (PROJECT / "docs" / "guides" / "from-hive-settings.md").read_text().partition("## From hive-site.xml")[2]
    taken, elsewhere = (
        dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", part, re.MULTILINE)) for part in text.split("| --- | --- |")[1:3]
    )
    assert tuple(taken) == properties.TAKEN
    assert elsewhere == properties.ELSEWHERE


def test_airflow_warns_of_a_short_text_in_an_extra() -> None:
    """So that :func:`connections.read` would see it in an example."""
    short = {"conn_type": "hivelock", "extra": {"installation": "prod"}}
    assert any("too short" in line for line in connections.warnings_of(Connection.from_json(json.dumps(short))))
    harmless = {"conn_type": "hivelock", "extra": {"installation": "etl-prod", "ssl": True, "timeout_s": 5}}
    assert not connections.warnings_of(Connection.from_json(json.dumps(harmless)))


def test_no_example_has_airflow_warn_of_a_short_installation() -> None:
    """Docstrings and error messages also have examples."""
    shortest = SecretsMasker.min_length_to_mask
    texts = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "airflow_hivelock").rglob("*.py")]
    found = {name for file in texts for name in re.findall(r'"installation": "([^"]*)"', file.read_text())}
    assert found
    assert not [name for name in found if len(name) < shortest]
