"""Every row of the table, which goes to ``airflow-output/jobs.md``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clusters import Databricks, Dataproc, Emr, Glue, Kubernetes, Livy
from tests.system.deaths.stage import play_all, staged
from tests.system.jobs import report
from tests.system.jobs.rows import rows

if TYPE_CHECKING:
    from tests.support.servers import ZooKeeperServer
    from tests.system.deaths.row import Row

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(3600)]

OUTPUT = Path("airflow-output")
AT_ONCE = 6
FREED_S = 60.0
"""How soon after its last writer a lock is free, whose cluster answers."""


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> dict[str, Any]:
    """Of all rows that are asked for."""
    pytest.importorskip("airflow.providers.databricks", reason="`make test-jobs` installs the providers")
    asked = [item.callspec.params["row"] for item in request.session.items if item.module is request.module]  # type: ignore[attr-defined]
    directory = tmp_path_factory.mktemp("jobs")
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(cluster)
            for cluster in (
                Livy(),
                Databricks(),
                Emr(),
                Glue(),
                Dataproc(directory=directory / "certificates"),
                Kubernetes(),
            )
        ]
        stage = stack.enter_context(
            staged(directory, zookeeper, dags_of=Path(__file__).parent / "dags", clusters=clusters)
        )
        verdicts = play_all(stage, asked, AT_ONCE)
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "jobs.md").write_text(report.table(asked, verdicts))
    return verdicts


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row.name)
def test_the_lock_is_held_for_as_long_as_the_job_writes(row: Row, verdicts: dict[str, Any]) -> None:
    verdict = verdicts[row.name]
    if isinstance(verdict, BaseException):
        raise verdict
    print(verdict)
    assert verdict.wrong == ()
    assert set(verdict.freed_by) <= set(row.by)
    if row.frees_itself and verdict.freed_after_s is not None:
        assert verdict.freed_after_s < FREED_S
