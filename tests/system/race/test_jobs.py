"""The jobs that a user copies, submitted with the arguments that a user gives, against sums over the CSV itself."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from dags_examples.jobs.load_flights import packaged_flights
from tests.support.servers import Metastore
from tests.system.race.scenario import FLIGHTS
from tests.system.race.spark import ROOT, run_job

pytestmark = pytest.mark.integration

JOBS = ROOT / "dags_examples" / "jobs"
IN_TURN = Path(__file__).with_name("in_turn.py")
FIRST, LAST = min(FLIGHTS), max(FLIGHTS)


def week_in_csv() -> dict[str, tuple[int, int, float]]:
    """Flights, cancelled flights and mean departure delay in minutes of each carrier."""
    delays: defaultdict[str, list[str]] = defaultdict(list)
    with zipfile.ZipFile(packaged_flights()) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
            if FIRST <= f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}" <= LAST:
                delays[row["carrier"]].append(row["dep_delay"])
    departed = {carrier: [int(delay) for delay in of if delay != "NA"] for carrier, of in delays.items()}
    return {
        carrier: (len(of), len(of) - len(departed[carrier]), sum(departed[carrier]) / len(departed[carrier]))
        for carrier, of in delays.items()
    }


def test_the_report_of_a_week_is_the_csv_s(tmp_path: Path) -> None:
    commands = [
        ["load_flights.py", packaged_flights(), "--from", FIRST, "--to", LAST],
        ["daily_delays.py", "--from", FIRST, "--to", LAST],
        ["alter_table.py", "dw.delays", "--column", "diverted BIGINT", "--property", "team=ops"],
        ["daily_delays.py", "--dt", LAST],
        ["weekly_report.py", "--to", LAST],
    ]
    with Metastore(tmp_path) as metastore:
        printed = run_job(
            metastore, IN_TURN, json.dumps([[str(JOBS / name), *arguments] for name, *arguments in commands])
        )
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if "|" in line]
    report = {carrier: (int(flights), int(cancelled), float(late)) for carrier, flights, cancelled, late in lines[1:]}
    for carrier, expected in week_in_csv().items():
        assert report.pop(carrier) == pytest.approx(expected, abs=0.051), carrier
    assert not report
