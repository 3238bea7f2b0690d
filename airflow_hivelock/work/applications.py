"""What runs under a lease, and whether it has ended: a dead task does not mean a dead Spark application.

Each is recorded on the lease in words that another process can take up: the processes of a task on its host, before
anything starts there; and the id that a cluster gave the job, once it has one.
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
    """*application* as a lease records it."""
    return json.dumps({"kind": application.kind, **asdict(cast("Any", application))}, separators=(",", ":"))


def decode(text: str) -> Application:
    """The inverse of :func:`encode`.

    :raises CannotTell: another program recorded it, or a newer version.
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
        raise CannotTell(f"{text[:80]!r} is no application that this version knows: {error!r}") from error


def running(works: Iterable[Work]) -> list[str]:
    """Those of *works* that still run.

    :raises CannotTell: whether one of them does.
    """
    found = []
    for work in works:
        application = of(work)
        if application.running():
            found.append(f"{application} of {work.name}")
        elif isinstance(application, Processes) and application.submits:
            raise CannotTell(
                f"{application} of {work.name} has ended, and may have left work to a cluster (an operator of which that "
                "is not so says work_ends_with_process = True)"
            )
    return found


def of(work: Work) -> Application:
    """What runs as *work*.

    :raises CannotTell: nothing was recorded that this version knows.
    """
    if not work.application:
        raise CannotTell(
            f"{work.name} was deferred, and has not come back to say what became of the work that it waited for"
        )
    return decode(work.application)
