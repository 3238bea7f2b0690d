"""The description of this provider for Airflow's providers manager."""

from __future__ import annotations

from typing import Any

from airflow_hivelock import __version__

_NAME = "Hive locks"


def get_provider_info() -> dict[str, Any]:
    """This provider, in the format of Airflow's ``provider_info.schema.json``."""
    text = {"type": ["string", "null"]}
    return {
        "package-name": "airflow-hivelock",
        "name": _NAME,
        "description": "Hive's own table and partition locks for Airflow tasks.",
        "versions": [__version__],
        "integrations": [{"integration-name": _NAME, "tags": ["apache", "software"]}],
        "hooks": [{"integration-name": _NAME, "python-modules": ["airflow_hivelock.hooks"]}],
        "operators": [
            {
                "integration-name": _NAME,
                "python-modules": [
                    f"airflow_hivelock.operators.{name}"
                    for name in ("lock", "force_unlock", "spark_submit", "mixin", "locked")
                ],
            }
        ],
        "task-decorators": [{"name": "hivelock", "class-name": "airflow_hivelock.operators.taskflow.hivelock_task"}],
        "sensors": [{"integration-name": _NAME, "python-modules": ["airflow_hivelock.sensors"]}],
        "triggers": [
            {
                "integration-name": _NAME,
                "python-modules": ["airflow_hivelock.triggers.lock", "airflow_hivelock.triggers.keeper"],
            }
        ],
        "cli": ["airflow_hivelock.cli.command.get_cli_commands"],
        "extra-links": ["airflow_hivelock.links.HiveLocksLink"],
        "config": {
            "hivelock": {
                "description": "Hive locks",
                "options": {
                    "connections": {
                        "description": 'Connections of type hivelock for the page "Hive locks", comma separated: '
                        "those in a secrets backend, because these cannot be listed.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "hivelock_default,hivelock_staging",
                        "default": "",
                    },
                    "kube_config_files": {
                        "description": "Kubeconfig files, comma separated, that may be read to check the jobs of operators "
                        "with that config_file. Files that connections name need not be listed.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/etc/airflow/kube/prod.yaml",
                        "default": "",
                    },
                    "impersonated_accounts": {
                        "description": "Google service accounts, comma separated, that may be impersonated to check the jobs of "
                        "operators with an impersonation_chain. Accounts that connections name need not be listed.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "etl@project.iam.gserviceaccount.com",
                        "default": "",
                    },
                },
            }
        },
        "connection-types": [
            {
                "connection-type": "hivelock",
                "hook-class-name": "airflow_hivelock.hooks.HiveLockHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "relabeling": {"host": "Servers", "schema": "Hive's ZooKeeper namespace, or database"},
                    "placeholders": {
                        "host": "zk1:2181,zk2:2181",
                        "port": "2181",
                        "schema": "hive_zookeeper_namespace",
                    },
                },
                "conn-fields": {
                    "installation": {
                        "label": "Installation id",
                        "description": "The name of this Airflow, unique among those on the same lock store",
                        "schema": text,
                    },
                    "metastore_uri": {
                        "label": "Hive metastore",
                        "description": "thrift://host:9083, to look up partitions",
                        "schema": text,
                    },
                    "hive_site": {
                        "label": "hive-site.xml",
                        "description": "/etc/hive/conf/hive-site.xml on each component's host. It supplies the settings that are not set here",
                        "schema": text,
                    },
                    "backend": {
                        "label": "Backend",
                        "description": "zookeeper, postgresql, mysql, sqlite, metastore, hiveserver2, or memory for a first try",
                        "schema": {**text, "default": "zookeeper"},
                    },
                    "root": {
                        "label": "Root",
                        "description": "The node in ZooKeeper for the queue and the leases",
                        "schema": text,
                    },
                },
            }
        ],
    }
