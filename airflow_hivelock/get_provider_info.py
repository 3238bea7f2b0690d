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
                        "description": 'Connections of type hivelock for the page "Hive locks", comma separated. Name '
                        "the connections in a secrets backend, because Airflow cannot list those.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "hivelock_default,hivelock_staging",
                        "default": "",
                    },
                    "kube_config_files": {
                        "description": "Kubeconfig files, comma separated. This package may read them to check the jobs of "
                        "operators with that config_file. It may always read the files that a connection names.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/etc/airflow/kube/prod.yaml",
                        "default": "",
                    },
                    "impersonated_accounts": {
                        "description": "Google service accounts, comma separated. This package may impersonate them to check "
                        "the jobs of operators with an impersonation_chain. It may always impersonate the accounts that a "
                        "connection names.",
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
                        "description": "A name for this Airflow. Each Airflow on one lock store needs its own",
                        "schema": text,
                    },
                    "metastore_uri": {
                        "label": "Hive metastore",
                        "description": "thrift://host:9083. Tasks look up partitions there",
                        "schema": text,
                    },
                    "hive_site": {
                        "label": "hive-site.xml",
                        "description": "A file on the host of each Airflow component, such as /etc/hive/conf/hive-site.xml. "
                        "It supplies the settings that are not set here",
                        "schema": text,
                    },
                    "backend": {
                        "label": "Backend",
                        "description": "zookeeper, postgresql, mysql, sqlite, metastore, hiveserver2, or memory for a first try",
                        "schema": {**text, "default": "zookeeper"},
                    },
                    "root": {
                        "label": "Root",
                        "description": "The node in ZooKeeper that contains the queue and the leases",
                        "schema": text,
                    },
                },
            }
        ],
    }
