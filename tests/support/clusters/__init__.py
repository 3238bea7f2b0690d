"""Stand-ins of what runs jobs elsewhere: real processes behind the REST and gRPC calls that Airflow's own hooks make."""

from tests.support.clusters.cluster import Cluster, Job, Refused, Silent, Unknown
from tests.support.clusters.dataproc import Dataproc
from tests.support.clusters.http import HttpCluster, Request
from tests.support.clusters.rest import Databricks, Emr, Glue, Kubernetes, Livy

__all__ = [
    "Cluster",
    "Databricks",
    "Dataproc",
    "Emr",
    "Glue",
    "HttpCluster",
    "Job",
    "Kubernetes",
    "Livy",
    "Refused",
    "Request",
    "Silent",
    "Unknown",
]
