"""Run by the Python of an environment: whether Airflow finds all parts of the package there, and parses its DAGs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import tempfile
from importlib.metadata import version
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "dags_examples"
NAMED = ("apache-airflow", "apache-airflow-task-sdk", "apache-airflow-providers-apache-spark")
OF_OTHER_EXTRAS = ("airflow.providers.openlineage", "py4j")
OTHERS = ("apache-airflow-providers-common-compat", "kazoo", "psutil", "psycopg", "sqlalchemy", "sqlglot")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="airflow-") as home:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        print(*(f"{name} {version(name)}" for name in (*NAMED, *OTHERS)), sep=", ")
        imports()
        provider()
        plugin()
        dags()


def imports() -> None:
    """Every module, and every public name."""
    import airflow_hivelock

    for module in pkgutil.walk_packages(airflow_hivelock.__path__, "airflow_hivelock."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in OF_OTHER_EXTRAS:
                raise
    for name in airflow_hivelock.__all__:
        getattr(airflow_hivelock, name)


def provider() -> None:
    """Connection type, extra link and commands."""
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    assert "airflow-hivelock" in manager.providers
    hook = manager.hooks["hivelock"]
    assert hook is not None
    assert hook.hook_name == "Hive locks"
    assert "airflow_hivelock.links.HiveLocksLink" in manager.extra_links_class_names


def plugin() -> None:
    """The page."""
    from airflow import plugins_manager

    (page,) = (found for found in plugins_manager.get_plugin_info() if found["name"] == "hivelock")
    assert page["fastapi_apps"]
    assert page["external_views"]


def dags() -> None:
    """Every DAG that a user copies."""
    from tests.support.airflow_names import DagBag

    bag = DagBag(dag_folder=str(EXAMPLES))
    assert not bag.import_errors, bag.import_errors
    assert len(bag.dags) == len(list(EXAMPLES.glob("[a-z]*.py"))), sorted(bag.dags)


if __name__ == "__main__":
    main()
