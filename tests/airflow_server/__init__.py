"""A real Airflow in a throw-away home: scheduler, DAG processor, triggerer and API server, driven as a person drives it."""

from __future__ import annotations

from tests.airflow_server.component import Component, ComponentDied
from tests.airflow_server.control import WaitTimeout
from tests.airflow_server.metadata import RunState, TaskState
from tests.airflow_server.rest import RestApi, RestError
from tests.airflow_server.server import KINDS, AirflowServer, CommandFailed, TaskProcess

__all__ = [
    "KINDS",
    "AirflowServer",
    "CommandFailed",
    "Component",
    "ComponentDied",
    "RestApi",
    "RestError",
    "RunState",
    "TaskProcess",
    "TaskState",
    "WaitTimeout",
]
