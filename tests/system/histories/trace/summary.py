"""Prints, at the end of a session of pytest, how much of its time the validation of traces has taken.

The hooks are in ``tests/conftest.py``. A test's report carries the figures, so they also arrive from the processes of pytest-xdist.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pytest

from tests.system.histories.trace import validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _pytest.terminal import TerminalReporter

PROPERTY = "traces"


@dataclass
class Figures:
    """Of the traces of some tests. ``tests_s``: how long these tests took, with their validation."""

    traces: int = 0
    processes: int = 0
    transactions: int = 0
    returned: int = 0
    seconds: float = 0.0
    tests_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.traces:5} traces {self.processes:6} processes {self.transactions:9,} transactions "
            f"{self.returned:7,} leases {self.seconds:7.2f} s of {self.tests_s:6.0f} s"
        )

    def add(self, other: Figures) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @classmethod
    def taken(cls) -> Figures:
        """Those of the traces validated since the last call."""
        traces = validate.VALIDATED[:]
        validate.VALIDATED.clear()
        return cls(
            len(traces),
            sum(trace.processes for trace in traces),
            sum(trace.transactions for trace in traces),
            sum(trace.returned for trace in traces),
            sum(trace.seconds for trace in traces),
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call" and validate.VALIDATED:
        item.user_properties.append((PROPERTY, asdict(Figures.taken())))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    reports = [one for many in terminalreporter.stats.values() for one in many if isinstance(one, pytest.TestReport)]
    if lines := list(summary(reports)):
        terminalreporter.section("traces validated")
        for line in lines:
            terminalreporter.write_line(line)


def summary(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A line for each file of tests with traces, and one for all tests. Nothing without a trace."""
    files: defaultdict[str, Figures] = defaultdict(Figures)
    durations: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        file = report.location[0]
        durations[file] += report.duration
        figures: Mapping[str, float] | None = dict(report.user_properties).get(PROPERTY)  # type: ignore[assignment]
        if report.when == "call" and figures:
            files[file].add(Figures(**figures))  # type: ignore[arg-type]
    total = Figures()
    for file, found in sorted(files.items()):
        found.tests_s = durations[file]
        total.add(found)
        yield f"{found}  {file}"
    if files:
        total.tests_s = sum(durations.values())
        yield f"{total}  all tests: {total.seconds / max(total.tests_s, 0.01):.2%}"
