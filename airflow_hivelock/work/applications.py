"""What runs under a lease, and whether it has ended: a dead task does not mean a dead Spark application.

A lease records each application in a form that another process can read. It records the processes of a task on its host
before anything starts there. It records the cluster's id of a job as soon as there is one.
"""

from __future__ import annotations

import json
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

    from airflow_hivelock.locks.model import Work


Application = Processes | Job


def encode(application: Application) -> str:
    """Return *application* in the form that a lease records."""
    return json.dumps({"kind": application.kind, **asdict(cast("Any", application))}, separators=(",", ":"))


def decode(text: str) -> Application:
    """Read what :func:`encode` has written.

    :raises CannotTell: another program or a newer version has recorded it.
    """
    try:
        data = validate.load(text)
        kind = validate.text(data.pop("kind"), "kind")
        if kind == Processes.kind:
            return Processes(**data)
        # Another package's kind is loaded in a thread: its import may fail in any way.
        made = table.kind(kind) if kind in table.KINDS else in_time(f"kind of jobs {kind}", lambda: table.kind(kind))
        return made(**data)
    except CannotTell as error:
        raise CannotTell(f"{text[:80]!r} cannot be read here: {error}") from error
    except Exception as error:
        raise CannotTell(
            f"this version cannot read the recorded work {text[:80]!r}: {error!r}. Upgrade airflow-hivelock here"
        ) from error


def running(works: Iterable[Work]) -> list[str]:
    """Return those of *works* that still run.

    :raises CannotTell: it is unknown whether one of them still runs.
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


def of(work: Work) -> Application:
    """Return what runs as *work*.

    :raises CannotTell: the record is empty, or this version cannot read it.
    """
    if not work.application:
        raise CannotTell(
            f"{work.name} was deferred and has not resumed, so the state of its work is unknown. Look whether it still "
            "runs before you free the lease"
        )
    return decode(work.application)
