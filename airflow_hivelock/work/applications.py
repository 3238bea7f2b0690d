"""The work under a lease, and whether it has ended. A Spark application can run longer than its task.

A lease records its work in a form that other processes can read. It records the task's processes before they start
anything, and the cluster's id of a job as soon as there is one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from airflow_hivelock.locks import validate
from airflow_hivelock.locks.errors import CannotTell
from airflow_hivelock.work.asking import in_time
from airflow_hivelock.work.jobs import table
from airflow_hivelock.work.jobs.job import Job
from airflow_hivelock.work.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_hivelock.locks.model import Lease, Work


Application = Processes | Job


def begun(lease: Lease, name: str) -> Work | None:
    """Return the work *name* under *lease*. None also if its record has no process, so that it starts as new work."""
    work = lease.work(name)
    if work is not None and work.application:
        with suppress(CannotTell):
            application = decode(work.application)
            if isinstance(application, Processes) and not application.exist:
                return None
    return work


def encode(application: Application) -> str:
    """Return *application* as the text that a lease records."""
    return json.dumps({"kind": application.kind, **asdict(cast("Any", application))}, separators=(",", ":"))


def decode(text: str) -> Application:
    """Read the text of :func:`encode`.

    :raises CannotTell: another program or a newer version wrote it.
    """
    try:
        data = validate.load(text)
        kind = validate.text(data.pop("kind"), "kind")
        if kind == Processes.kind:
            return Processes(**data)
        # Load another package's kind in a thread, because its import can fail in any way.
        made = table.kind(kind) if kind in table.KINDS else in_time(f"kind of jobs {kind}", lambda: table.kind(kind))
        return made(**data)
    except CannotTell as error:
        raise CannotTell(f"{text[:80]!r} cannot be read here: {error}") from error
    except Exception as error:
        raise CannotTell(
            f"this version cannot read the recorded work {text[:80]!r}: {error!r}. Upgrade airflow-hivelock here"
        ) from error


def running(works: Iterable[Work]) -> list[str]:
    """Return the *works* that still run, as texts.

    :raises CannotTell: the state of one of them is unknown.
    """
    found = []
    for work in works:
        application = of(work)
        if application.running():
            found.append(f"{application} of {work.name}")
        elif isinstance(application, Processes) and application.submits:
            raise CannotTell(
                f"{application} of {work.name} has ended, but may have submitted work to a cluster. If an operator never "
                "does that, set work_ends_with_process = True in its class"
            )
    return found


def end(work: Work, log: Any) -> None:
    """End *work*, if an earlier try of its task has left it running.

    :raises CannotTell: its state is unknown, or it may submit more work to a cluster.
    """
    if running([work]):
        application = of(work)
        if isinstance(application, Processes) and application.submits:
            raise CannotTell(f"{application} still runs, and may submit work to a cluster")
        log.warning("Ending %s, which an earlier try has left running", application)
        application.stop()


def of(work: Work) -> Application:
    """Return the application that *work* records.

    :raises CannotTell: the record is empty, or this version cannot read it.
    """
    if not work.application:
        raise CannotTell(
            f"{work.name} was deferred and has not resumed, so the state of its work is unknown. Check whether it "
            "still runs before you free the lease"
        )
    return decode(work.application)
