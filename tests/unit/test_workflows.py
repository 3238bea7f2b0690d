"""The workflows run what the project runs itself, with fixed actions and few rights; the templates can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github"
WORKFLOWS = sorted(FOLDER.glob("workflows/*.yml"))
FORMS = [path for path in sorted(FOLDER.glob("ISSUE_TEMPLATE/*.yml")) if path.stem != "config"]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_fixed_to_a_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w.-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_a_job_says_more(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert more in ({}, {"publish": {"id-token": "write"}})


def test_a_change_passes_what_the_project_runs() -> None:
    runs = [step["run"] for step in steps(FOLDER / "workflows/ci.yml") if "run" in step]
    assert any(run.endswith("bash .ci/run") for run in runs)


def test_what_is_published_was_built_by_make_release_and_no_password_is_used() -> None:
    workflow = yaml.safe_load((FOLDER / "workflows/publish.yml").read_text())
    assert any(step.get("run", "").startswith("make release TAG=") for step in workflow["jobs"]["build"]["steps"])
    assert workflow["jobs"]["publish"]["needs"] == "build"
    assert workflow["jobs"]["publish"]["environment"] == "release"
    assert "password" not in (FOLDER / "workflows/publish.yml").read_text().replace("There is no password", "")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_asks_for_something_and_each_part_has_a_name(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    names = [part["id"] for part in form["body"]]
    assert len(set(names)) == len(names) > 1
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_the_links_of_the_templates_are_the_projects_own() -> None:
    links = yaml.safe_load((FOLDER / "ISSUE_TEMPLATE/config.yml").read_text())["contact_links"]
    home = re.search(r'^Homepage = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert home is not None
    assert all(link["url"].startswith(home[1]) for link in links)
