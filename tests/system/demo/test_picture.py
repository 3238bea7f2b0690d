"""The demo's picture and page, from the times of a real run."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from airflow_hivelock.locks import Tenure, rules
from airflow_hivelock.spec import Owner
from tests.system.demo import picture, report, spark_submit, work

if TYPE_CHECKING:
    from pathlib import Path

BEGUN = datetime(2026, 11, 22, 2, 51, 56, tzinfo=UTC)
NASTY = "<script>alert(1)</script>"

RUN = [  # DAG, run, task, object, asked, granted and ended in seconds after the first
    ("flights_daily", "backfill__2013-01-16T00:00:00+00:00", "lock", "dw.delays/dt=2013-01-16", 0.4, 198.3, 215.2),
    ("flights_daily", "backfill__2013-01-12T00:00:00+00:00", "lock", "dw.delays/dt=2013-01-12", 0.6, 0.9, 146.0),
    ("alter_table", "manual__2026-11-22T02:54:21+00:00", "add_column", "dw.delays", 147.9, 215.5, 230.9),
    ("crash", "manual__2026-11-22T02:56:08+00:00", "lock", "dw.delays/dt=2013-01-31", 254.0, 254.0, 264.2),
    ("flights_daily", "manual__2026-11-22T02:56:12+00:00", "lock", "dw.delays/dt=2013-01-31", 263.0, 264.2, 285.7),
]


def at(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def tenures() -> list[Tenure]:
    """The records of a run: five leases, and the lock of Hive's own session."""
    found = [
        Tenure(
            f"lease-{number}",
            str(Owner("demo", dag, run, task)),
            rules.request("recorded", writes=[written]).locks,
            *map(at, (asked, granted, ended)),
        )
        for number, (dag, run, task, written, asked, granted, ended) in enumerate(RUN)
    ]
    hives = rules.request("recorded", writes=["dw.flights/dt=2013-01-16"]).locks
    return [*found, Tenure("", "a Hive session", hives, at(0), at(0), at(198))]


def done() -> work.Jobs:
    """The jobs that ran under the leases of :func:`tenures`, as they were noted; the last one was killed."""
    notes = [("lease-0", 199.3, 214.0), ("lease-1", 20.9, 40.9), ("lease-1", 120.9, 145.8), ("lease-4", 266.2, None)]
    return work.jobs(
        f"{what} {lease} {BEGUN.timestamp() + seconds:.3f}"
        for lease, *times in notes
        for what, seconds in zip(("begin", "end"), times, strict=True)
        if seconds is not None
    )


def test_each_row_says_who_waited_for_what_and_how_it_held() -> None:
    drawn = picture.rows(tenures(), done(), forced=["lease-3"])
    assert [(row.task, row.written, row.waited, row.held, row.worked, row.kind) for row in drawn] == [
        ("a Hive session", "dw.flights/dt=2013-01-16", "0.0 s", "198.0 s", "", "hive"),
        ("flights_daily.lock 2013-01-16", "dw.delays/dt=2013-01-16", "197.9 s", "16.9 s", "14.7 s", "holds"),
        ("flights_daily.lock 2013-01-12", "dw.delays/dt=2013-01-12", "0.3 s", "145.1 s", "44.9 s", "holds"),
        ("alter_table.add_column 2026-11-22", "dw.delays", "67.6 s", "15.4 s", "", "holds"),
        ("crash.lock 2026-11-22", "dw.delays/dt=2013-01-31", "0.0 s", "10.2 s", "", "left"),
        ("flights_daily.lock 2026-11-22", "dw.delays/dt=2013-01-31", "1.2 s", "21.5 s", "19.5 s", "holds"),
    ]


def test_what_is_held_idle_is_drawn_as_that_and_what_works_as_that() -> None:
    drawn = picture.rows(tenures(), done(), forced=["lease-3"])
    [axes] = picture.figure(drawn, "recorded").axes
    days = [row.task for row in drawn].index("flights_daily.lock 2013-01-12")
    bars = [
        (kind, round(bar.get_x(), 1), round(bar.get_x() + bar.get_width(), 1))
        for bar in axes.patches
        if isinstance(bar, Rectangle) and round(bar.get_y() + bar.get_height() / 2) == days
        for kind, (colour, _) in picture.KINDS.items()
        if to_hex(bar.get_facecolor()) == colour
    ]
    assert bars == [("holds", 0.9, 146.0), ("works", 20.9, 40.9), ("works", 120.9, 145.8)]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [said for _, said in picture.KINDS.values()]


def test_the_report_says_how_long_locks_stood_idle() -> None:
    holds = work.Holds.of(tenures(), done())
    assert (round(holds.held_s, 1), round(holds.worked_s, 1)) == (183.5, 79.1), "of those under which a job ran"
    assert round(holds.ratio, 2) == 2.32
    assert report.holds(holds) == (
        "locks held ÷ worked: 2.32 (184 s ÷ 79 s); "
        "longest held while nothing worked: 80.0 s, by flights_daily.lock 2013-01-12"
    )
    bar = report.timeline(tenures(), done()).columns[-1]._cells
    text = [str(cell) for cell in bar]
    assert set(text[0].strip()) == {"█"}, "Hive's session works as long as it holds"
    assert re.fullmatch(r" *▒+█+▒+█+▒* *", text[2]), text[2]


def test_a_job_is_noted_by_its_lease_with_its_own_end_and_its_own_exit_code(tmp_path: Path) -> None:
    notes = tmp_path / "work.txt"
    command: list[str] = [
        sys.executable,
        "-S",
        spark_submit.__file__,
        str(notes),
        sys.executable,
        "-c",
        "import sys; sys.exit(len(sys.argv))",
    ]
    code = subprocess.run([*command, "--conf", "spark.hivelock.lease=one", "a job.py"], check=False).returncode
    assert code == 4, "what it was called with is what it gets"
    [(lease, [(begun, ended)])] = work.jobs(notes.read_text().splitlines()).items()
    assert lease == "one"
    assert ended is not None
    assert begun <= ended


def test_the_page_needs_no_other_file_and_shows_names_as_text() -> None:
    odd = Tenure("lease-9", NASTY, rules.request("x", writes=["dw.t"]).locks, at(1), at(2), None)
    drawn = picture.rows([*tenures(), odd], done(), forced=["lease-3"])
    said = f"an unrelated DAG & {NASTY}"
    page = picture.page(picture.figure(drawn, said), drawn, {"all of it holds": True, "one <b> does not": False})
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"\s(src|href)=\"(?!#)", page), "everything is within the page"
    assert not re.search(r"url\((?!#)|@import", page), "no style from elsewhere either"
    assert "<svg" in page
    assert "<?xml" not in page
    for row in drawn:
        if row.task == NASTY:
            continue
        assert f"<td>{row.task}</td>" in page
        assert f">{row.task}</text>" in page, "text stays text in the drawing"
        figures = "".join(f'<td class="figure">{figure}</td>' for figure in (row.waited, row.held, row.worked))
        assert figures in page
    assert '<li class="missed">✗ one &lt;b&gt; does not</li>' in page


def test_the_picture_is_one() -> None:
    drawn = picture.rows(tenures(), done())
    data = picture.png(picture.figure(drawn, "recorded"))
    assert data.startswith(b"\x89PNG\r\n")
    assert len(data) < 300_000
