"""The Grafana board and the alert rules ask for metrics that the package sends, each in a way that fits its kind."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
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
    from pathlib import Path

BOARD = json.loads((PROJECT / "docs/grafana/hivelock.json").read_text())
ALERTS = PROJECT / "docs/grafana/alerts.yaml"
RULES = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
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
    "set_gauges": ((), (), datetime.now(UTC), "here", 0),
    "store_failed": (),
    "timed_out": (),
}
"""Arguments for each function that sends something."""

HAPPENS = {
    "HiveLockWaitsForAnHour": ("airflow_hivelock_waiting_longest_s", "0+60x90", 59, 62),
    "HiveLockOfADeadRun": ("airflow_hivelock_suspect", "0x9 1x80", 38, 42),
    "HiveLockHeldForADay": ("airflow_hivelock_leases_oldest_s", "86000+60x90", 5, 8),
    "HiveLockStoreDoesNotAnswer": ("airflow_hivelock_store_error", "0x20 1+1x70", 22, 30),
    "HiveLockLost": ("airflow_hivelock_lost", "0x20 1x70", 19, 22),
    "HiveLockWaitsForWorkers": ("airflow_hivelock_waiting_slot", "0x9 3x80", 38, 42),
    "HiveLockKeeperIsSilent": ("airflow_hivelock_leases", "2x20 stale", 33, 40),
}
"""For each alert: its metric, the values of the minutes, a minute when it is silent, and one when it fires."""

prometheus = pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")


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
    counters = {f"hivelock.{name}" for name in metrics.COUNTERS}
    assert counters == {name for name, kind in sent.items() if kind == "counter"}


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


def ask(folder: Path, series: dict[str, str], expected: list[tuple[str, int, int]]) -> None:
    """Have Prometheus answer queries, and compare the number of time series in each answer.

    :param series: the values of the minutes, by series.
    :param expected: query, minute and number.
    """
    asked = [
        {"expr": expr, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": number}] if number else []}
        for expr, minute, number in expected
    ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@prometheus
def test_prometheus_answers_each_query_of_the_board(tmp_path: Path, sent: dict[str, str]) -> None:
    series: dict[str, str] = {}
    for name, (_, kind) in exported(sent).items():
        more = ('{quantile="0.5"}', '{quantile="0.9"}', '{quantile="0.99"}') if kind == "timing" else ("",)
        series |= {name + each: "0+1x90" for each in more}
    ask(tmp_path, series, [(f"count({query})", 60, 1) for query in queries()])


@prometheus
def test_each_alert_fires_in_its_time(tmp_path: Path) -> None:
    assert set(HAPPENS) == {rule["alert"] for rule in RULES}
    for alert, (metric, values, silent, fires) in HAPPENS.items():
        firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
        ask(tmp_path, {metric: values}, [(firing, silent, 0), (firing, fires, 1)])
