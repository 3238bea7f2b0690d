"""A real Airflow in a throw-away home: scheduler, DAG processor, triggerer and API server, driven as a person drives it."""

from __future__ import annotations

from tests.support.airflow_server.component import Component, ComponentDied
from tests.support.airflow_server.configuration import locks_in
from tests.support.airflow_server.control import WaitTimeout
from tests.support.airflow_server.metadata import RunState, TaskState
from tests.support.airflow_server.rest import RestApi, RestError
from tests.support.airflow_server.run import Run
from tests.support.airflow_server.server import KINDS, AirflowServer, CommandFailed, TaskProcess

__all__ = [
    "KINDS",
    "AirflowServer",
    "CommandFailed",
    "Component",
    "ComponentDied",
    "RestApi",
    "RestError",
    "Run",
    "RunState",
    "TaskProcess",
    "TaskState",
    "WaitTimeout",
    "locks_in",
]
