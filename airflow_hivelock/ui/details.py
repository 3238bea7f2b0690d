"""One lease with its recorded work, for the page's dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.ui.holders import job_rows
from airflow_hivelock.ui.view import owner_row
from airflow_hivelock.ui.works import host_of, judge, what

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_hivelock.locks.model import Lease
    from airflow_hivelock.ui.works import WorkState


def describe(
    lease: Lease, installation: str, answers: Mapping[str, WorkState], keeper: tuple[int, Mapping[str, str]]
) -> dict[str, Any]:
    """A lease with its recorded work and the known states of the work.

    :param keeper: the time of the keeper's last report on suspect leases, with the reasons by lease id.
    """
    hosts = {work.name: host_of(work.application) for work in lease.works}
    jobs = job_rows([[work.name, what(work.application)] for work in lease.works], answers)
    works = [
        {
            "name": name,
            "what": text,
            "host": hosts.get(name, ""),
            **dict(zip(("code", "how", "next"), known, strict=False)),
        }
        for name, text, *known in jobs
    ]
    shown = {
        "id": lease.id,
        "owner": owner_row(lease.owner, installation),
        "token": lease.token,
        "locks": len(lease.locks),
        "works": works,
    }
    why, step = judge(answers)
    at_ms, whys = keeper
    report = {"at": at_ms, "report": whys[lease.id]} if lease.id in whys else {}
    return shown | {"keeper": {"why": why, "next": step, **report}}
