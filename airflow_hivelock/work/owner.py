"""Who owns a lease: installation, DAG, run, task and map index, as one string in the lock store."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Self
from urllib.parse import unquote


@dataclass(frozen=True)
class Owner:
    """A task instance, whichever its try.

    :param installation: the id of the Airflow that it belongs to, from the connection: two installations on one
        lock store never share a lease, and neither judges the other's stale.
    :param map_index: -1 for a task that is not mapped.
    """

    installation: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    @classmethod
    def of(cls, installation: str, ti: Any) -> Self:
        """The owner that the task instance *ti* is."""
        map_index = -1 if ti.map_index is None else ti.map_index
        return cls(installation, ti.dag_id, ti.run_id, ti.task_id, map_index)

    @classmethod
    def parse(cls, text: Any) -> Self | None:
        """The inverse of ``str()``; None for an owner that is no task of any Airflow."""
        if not isinstance(text, str):
            return None
        parts = [unquote(part) for part in text.split("/")]
        try:
            installation, dag_id, run_id, task_id, map_index = parts
            return cls(installation, dag_id, run_id, task_id, int(map_index))
        except ValueError:
            return None

    @property
    def work(self) -> str:
        """What the task's own work is called under its lease, in all of its tries."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    @property
    def query(self) -> str:
        """What SHOW LOCKS … EXTENDED shows a person who meets the lock."""
        mapped = f" map index {self.map_index}" if self.map_index >= 0 else ""
        return f"dag {self.dag_id} run {self.run_id} task {self.task_id}{mapped}"

    def __str__(self) -> str:
        return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in astuple(self))
