"""The page's filter by owner, which the tabs of runs and task instances set. Node runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.page.__main__ import node_and_npm

OWNERS = Path(__file__).parents[2] / "airflow_hivelock/ui/static/owners.js"
RUN = "scheduled__2013-01-15T00:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        (f"flights {RUN} load ", True),
        (f"flights {RUN} load[3] ", True),
        (f"flights {RUN} load (other-airflow) ", True),
        (f"flights_daily {RUN} load ", False),
        (f"my.flights {RUN} load ", False),
        (f"flights {RUN} load_late ", False),
        (f"flights {RUN.replace('15', '16')} load ", False),
    ],
)
def test_the_tab_of_a_task_shows_no_other_task(text: str, is_shown: bool) -> None:
    """Runs of two DAGs can have the same id, and the name of one DAG can be a part of another name."""
    assert selects(f'"flights" "{RUN}" "load"', text) == is_shown


@pytest.mark.parametrize(
    ("words", "is_shown"),
    [
        ("", True),
        ("LIGHTS oad", True),
        ("flights hourly", False),
        ('"flights', True),
        ('"lights"', False),
        ('"load[3]"', True),
        ('"load[33]"', False),
    ],
)
def test_a_user_can_type_a_part_of_a_name_or_a_whole_name(words: str, is_shown: bool) -> None:
    assert selects(words, f"flights {RUN.lower()} load[3] ") == is_shown


def selects(words: str, text: str) -> bool:
    script = f"const {{ ownerFilter }} = await import({json.dumps(OWNERS.as_uri())});\n"
    script += f"console.log(ownerFilter({json.dumps(words)})({json.dumps(text.lower())}));"
    command = [node_and_npm()[0], "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip() == "true"
