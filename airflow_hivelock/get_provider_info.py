"""What Airflow's providers manager reads."""

from __future__ import annotations

from typing import Any

from airflow_hivelock import __version__

_NAME = "Hive locks"


def get_provider_info() -> dict[str, Any]:
    """This provider, as Airflow's ``provider_info.schema.json`` has it."""
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
                        "those that a secrets backend keeps, which cannot be listed.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "hivelock_default,hivelock_staging",
                        "default": "",
                    },
                    "kube_config_files": {
                        "description": "Kubeconfig files, comma separated, that are read to ask for the jobs of operators "
                        "with that config_file. Those that connections name need not be listed.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/etc/airflow/kube/prod.yaml",
                        "default": "",
                    },
                    "impersonated_accounts": {
                        "description": "Google service accounts, comma separated, that are impersonated to ask for the jobs of "
                        "operators with an impersonation_chain. Those that connections name need not be listed.",
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
                        "description": "Names this Airflow, differently from every other one on the same lock store",
                        "schema": text,
                    },
                    "metastore_uri": {
                        "label": "Hive metastore",
                        "description": "thrift://host:9083, where partitions are looked up",
                        "schema": text,
                    },
                    "hive_site": {
                        "label": "hive-site.xml",
                        "description": "/etc/hive/conf/hive-site.xml on each component's host: what is left out here, it says",
                        "schema": text,
                    },
                    "backend": {
                        "label": "Backend",
                        "description": "zookeeper, postgresql, mysql, sqlite, metastore, hiveserver2, or memory for trying things out",
                        "schema": {**text, "default": "zookeeper"},
                    },
                    "root": {
                        "label": "Root",
                        "description": "Where queue and leases live in ZooKeeper",
                        "schema": text,
                    },
                },
            }
        ],
    }
