"""YARN's word on an application, by the REST service of its ResourceManager.

https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import requests

from airflow_hivelock.locks.errors import CannotTell

if TYPE_CHECKING:
    from requests.auth import AuthBase

ASK_S = 20.0

LINGERS_S = 15.0
"""How long a driver may go on, in seconds, after the end of an application that has not succeeded. The ResourceManager calls
it KILLED at once: the NodeManager hears of that within a heartbeat, sends SIGTERM, and then SIGKILL."""

_OVER = ("FINISHED", "FAILED", "KILLED")
_DONE = "SUCCEEDED"
"""The final status with which a driver ends whose code has returned; one that was sent SIGTERM ends with another, as it runs."""


def running(manager_url: str, application_id: str, auth: AuthBase | None) -> bool:
    """Whether an application's driver may still run.

    :param manager_url: of the ResourceManager: ``http://rm:8088``.
    :raises CannotTell: it does not know the application; it was started anew, say, and remembers nothing.
    :raises requests.RequestException: it does not answer.
    """
    answer = requests.get(f"{manager_url}/ws/v1/cluster/apps/{application_id}", auth=auth, timeout=ASK_S)
    if answer.status_code == HTTPStatus.NOT_FOUND:
        raise CannotTell(
            f"the ResourceManager does not know {application_id}, or not any more: it forgets the oldest of those that have "
            "ended, and without yarn.resourcemanager.recovery.enabled all, once it is started anew. Look whether it still runs "
            "on a node of the cluster, and then free the lease"
        )
    answer.raise_for_status()
    application = answer.json()["app"]
    if application["state"] not in _OVER:
        return True
    if application["finalStatus"] == _DONE:
        return False
    now_s = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    return bool(now_s < application["finishedTime"] / 1000 + LINGERS_S)
