"""The Grafana board and the alert rules ask for metrics that the package sends, each in a way that fits its kind."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from airflow_hivelock import metrics
from airflow_hivelock.compat import stats
from tests.docs.blocks import PROJECT, Kind, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

BOARD = json.loads((PROJECT / "docs/grafana/hivelock.json").read_text())
RULES = yaml.safe_load((PROJECT / "docs/grafana/alerts.yaml").read_text())["groups"][0]["rules"]
KINDS = {"incr": "counter", "timing": "timing", "gauge": "gauge"}

CALLS: dict[str, tuple[Any, ...]] = {
    "acquired": (1.0,),
    "arrived": (1.0,),
    "force_released": (),
    "idle": (1.0,),
    "invited": (),
    "lost": (),
    "released": (datetime.now(UTC),),
    "slot_given_back": (),
    "standing": ((), (), datetime.now(UTC), "here", 0),
    "store_failed": (),
    "timed_out": (),
}
"""Arguments for each function that sends something."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The kind of each metric that the package sends, by its name."""
    found: dict[str, str] = {}
    for call, kind in KINDS.items():
        monkeypatch.setattr(stats, call, lambda name, *_, kind=kind: found.update({name: kind}))
    monkeypatch.setattr(metrics, "_initialize", lambda: None)
    senders = {
        name
        for name, each in vars(metrics).items()
        if inspect.isfunction(each) and "_emit(" in inspect.getsource(each) and not name.startswith("_")
    }
    assert senders == set(CALLS), "a function that sends a metric is not called here"
    for name, arguments in CALLS.items():
        getattr(metrics, name)(*arguments, **({"lapsed": True} if name == "slot_given_back" else {}))
    return found


def exported(sent: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Name and kind of each metric, by the name that statsd_exporter gives it."""
    return {f"airflow_{name.replace('.', '_')}": (name, kind) for name, kind in sent.items()}


def problems(expr: str, sent: dict[str, str]) -> Iterator[str]:
    """What is wrong with a query."""
    known = exported(sent)
    names = re.findall(r"airflow_hivelock\w*", expr)
    if not names:
        yield f"{expr}: it asks for no metric"
    for name in names:
        if name not in known:
            yield f"{expr}: {name} is sent by nothing"
            continue
        kind = known[name][1]
        if (kind == "counter") != bool(re.search(rf"(rate|increase)\({name}\[\w+\]\)", expr)):
            yield f"{expr}: {name} is a {kind}"
        if (kind == "timing") != (f'{name}{{quantile="' in expr):
            yield f"{expr}: {name} is a {kind}"


def queries() -> Iterator[str]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_the_documents_have_each_metric_that_is_sent_and_no_other(sent: dict[str, str]) -> None:
    documented = dict(re.findall(r"^``(hivelock[\w.]+)`` +(\w+)", metrics.__doc__ or "", re.MULTILINE))
    assert documented == sent


def test_the_board_shows_each_metric_and_no_other(sent: dict[str, str]) -> None:
    assert [problem for query in queries() for problem in problems(query, sent)] == []
    shown = {name for query in queries() for name in re.findall(r"airflow_hivelock\w*", query)}
    assert shown == set(exported(sent)), "a metric has no panel"


def test_the_panels_have_their_own_places_and_one_source() -> None:
    cells = Counter(
        (x, y)
        for panel in BOARD["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert max(cells.values()) == 1
    assert max(x for x, _ in cells) < 24, "Grafana has 24 columns"
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    (source,) = BOARD["templating"]["list"]
    asked = [panel["datasource"] for panel in panels] + [each["datasource"] for p in panels for each in p["targets"]]
    assert all(each == {"type": "prometheus", "uid": f"${{{source['name']}}}"} for each in asked)


def test_the_alert_rules_ask_for_metrics_that_are_sent(sent: dict[str, str]) -> None:
    assert [problem for rule in RULES for problem in problems(rule["expr"], sent)] == []
    assert all(rule.keys() <= {"alert", "expr", "for", "annotations"} and rule["annotations"] for rule in RULES)
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_the_rules_in_the_documents_are_those_of_the_file() -> None:
    shown = [
        rule
        for block in blocks(Kind.ALERTS)
        for group in yaml.safe_load(block.text)["groups"]
        for rule in group["rules"]
    ]
    assert shown
    assert [rule for rule in shown if rule not in RULES] == []


@pytest.mark.parametrize(
    "expr",
    [
        "airflow_hivelock_waitng > 1",
        "airflow_hivelock_lost > 0",
        "rate(airflow_hivelock_leases[5m])",
        "airflow_hivelock_held > 1",
        "up == 0",
    ],
)
def test_a_wrong_query_is_noticed(expr: str, sent: dict[str, str]) -> None:
    assert list(problems(expr, sent))
