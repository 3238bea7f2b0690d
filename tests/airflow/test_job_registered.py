"""Kinds of jobs that other packages register: every process asks them, and no record alone has one imported."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest
from airflow.providers.common.compat.sdk import BaseOperator

from airflow_hivelock import HiveLockMixin
from airflow_hivelock.locks.errors import CannotTell, InvalidRequest
from airflow_hivelock.locks.model import Work
from airflow_hivelock.work import applications
from airflow_hivelock.work.jobs import table
from airflow_hivelock.work.jobs.resumable import ResumableJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Submits(BaseOperator):
    """Hands work on to a cluster."""


class LockedSubmits(HiveLockMixin, Submits):
    pass


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with a kind of jobs that it registers; nothing of it has been imported."""
    (tmp_path / "acme_jobs.py").write_text(
        "from dataclasses import dataclass\n"
        "from airflow_hivelock.work.jobs.job import Job\n"
        "ENDED = []\n"
        "@dataclass(frozen=True)\n"
        "class Batch(Job):\n"
        "    kind = 'acme-batch'\n"
        f"    operators = {{{__name__ + '.Submits'!r}: 'job_id'}}\n"
        "    batch_id: int\n"
        "    @classmethod\n"
        "    def of(cls, operator):\n"
        "        return cls(operator.job_id)\n"
        "    def running(self):\n"
        "        return self.batch_id not in ENDED\n"
        "    def cancel(self):\n"
        "        ENDED.append(self.batch_id)\n"
    )
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[airflow_hivelock.jobs]\nacme-batch = acme_jobs:Batch\n")

    def forget() -> None:
        table.kind.cache_clear()
        table.kind_of.cache_clear()
        sys.modules.pop("acme_jobs", None)

    forget()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield info
    forget()


def test_a_kind_of_jobs_that_an_installed_package_registers_is_asked_for_by_every_process(acme: Path) -> None:
    job = applications.decode('{"kind":"acme-batch","batch_id":7}')
    assert job.running()
    assert applications.running([Work("load", applications.encode(job), 7)])
    job.stop()
    assert not job.running()
    found = table.kind_of(LockedSubmits)
    assert found is not None
    assert (found[0].__name__, found[1]) == ("Batch", "job_id")


def test_a_kind_of_jobs_that_is_not_registered_is_neither_imported_nor_asked_for(acme: Path) -> None:
    (acme / "entry_points.txt").unlink()
    with pytest.raises(CannotTell, match="this version cannot read the recorded work"):
        applications.decode('{"kind":"acme-batch","batch_id":7}')
    with pytest.raises(CannotTell, match=r"not imported, because only a record names it.*airflow_hivelock.jobs"):
        ResumableJob("acme_jobs.Batch", 7, {}).running()
    assert "acme_jobs" not in sys.modules


def test_a_kind_under_another_name_is_refused_for_its_operators_alone(acme: Path) -> None:
    """Its records could be read by no process, so the locks of a dead task would stay."""
    (acme / "entry_points.txt").write_text("[airflow_hivelock.jobs]\nacme = acme_jobs:Batch\n")
    with pytest.raises(InvalidRequest, match="Batch has kind='acme-batch', but is registered as 'acme'"):
        table.kind_of(LockedSubmits)
    assert table.kind_of(BaseOperator) is None


def test_each_kind_here_has_the_name_that_a_lease_records() -> None:
    assert [name for name in table.KINDS if table.kind(name).kind != name] == []


def test_kinds_of_others_are_found_by_their_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Theirs(ResumableJob):
        kind: ClassVar = "theirs"
        operators: ClassVar = {f"{__name__}.Submits": "job_id"}

    class Entry:
        name = "theirs"

        def load(self) -> type:
            return Theirs

    monkeypatch.setattr(table, "entry_points", lambda group, name="theirs": [Entry()] if name == "theirs" else [])
    table.kind.cache_clear()
    table.kind_of.cache_clear()
    try:
        assert table.kind_of(LockedSubmits) == (Theirs, "job_id")
        job = Theirs(f"{__name__}.Submits", 1, {})
        assert applications.decode(applications.encode(job)) == job
    finally:
        table.kind.cache_clear()
        table.kind_of.cache_clear()
