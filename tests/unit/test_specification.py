"""The specification and the code name the same things: actions and functions, promises and rows, rules and mutations."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.spec.cases import CASES

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
README = (SPEC / "README.md").read_text()
MODULES = {path.stem: path.read_text() for path in SPEC.glob("*.tla")}
PROMISES = {name for case in CASES for name in (*case.invariants, *case.properties)}

TABLES = {
    "Of Locks.tla": ("Writes", "Invitations", "Hive", "Locks"),
    "Of Leases.tla": ("Leases",),
    "Of Formats.tla": ("Formats",),
}
"""How the sentence before a table of actions begins, and the modules that have the actions."""

OTHERS = "The other actions are not functions"
STEP = re.compile(r"^(?:Step|InvitationStep|HiveStep|Next)(?:\(\w\))? ==(.*?)(?=^\S)", re.MULTILINE | re.DOTALL)
ACTION = re.compile(r"\b([a-z]+(?:_[a-z]+)*)\b(?=\(\w\)|\s*$)", re.MULTILINE)
PACKAGES = ("airflow_hivelock.locks.backends.zookeeper", "airflow_hivelock", "airflow_hivelock.locks")


def actions(module: str) -> set[str]:
    """The names of a module's actions: the lower-case operators in its next step."""
    definition = STEP.search(MODULES[module] + "\n=")
    assert definition, module
    return set(ACTION.findall(definition[1])) - {"vars", "hives"}


def table(sentence: str) -> dict[str, list[str]]:
    """The rows of the table after *sentence*: action -> the code spans of its second cell."""
    rows = README.partition(f"\n{sentence}")[2].partition("| --- | --- |\n")[2].partition("\n\n")[0]
    found = {}
    for row in rows.splitlines():
        names, spans = (re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        found.update(dict.fromkeys(names, spans))
    assert found, sentence
    return found


def named(sentence: str) -> set[str]:
    return {action for module in TABLES[sentence] for action in actions(module)}


@pytest.mark.parametrize("sentence", TABLES)
def test_each_action_has_a_row_that_names_its_function(sentence: str) -> None:
    assert table(sentence).keys() | (table(OTHERS).keys() & named(sentence)) == named(sentence)


def test_the_other_actions_exist() -> None:
    assert table(OTHERS).keys() <= {action for sentence in TABLES for action in named(sentence)}


@pytest.mark.parametrize("sentence", TABLES)
def test_the_functions_of_the_actions_exist(sentence: str) -> None:
    for action, spans in table(sentence).items():
        functions = [span for span in spans if "." in span]
        assert functions, action
        for function in functions:
            assert any(callable(resolved(f"{package}.{function}", action)) for package in PACKAGES), (
                f"{action}: there is no {function}"
            )


def resolved(name: str, action: str) -> object:
    """The function with this dotted name, or the method *action* of that class; None: there is none."""
    parts = name.split(".")
    for number in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:number]))
        except ModuleNotFoundError:
            continue
        for part in parts[number:]:
            found = getattr(found, part, None)
        return getattr(found, action, None) if isinstance(found, type) else found
    return None


def test_each_promise_is_a_row_of_the_promises_by_its_name() -> None:
    promises = (ROOT / "docs" / "promises.md").read_text()
    lists = re.findall(r"\[specification\]\([^)]*\):((?:,?\s+`\w+`)+)", promises)
    assert {name for names in lists for name in re.findall(r"`(\w+)`", names)} == PROMISES
    checked = README.partition("## What is checked")[2].partition("## Figures")[0]
    assert set(re.findall(r"`([A-Z][A-Za-z]+)`", checked)) == PROMISES


def test_each_promise_is_defined_in_a_module() -> None:
    text = "\n".join(MODULES.values())
    assert not [name for name in PROMISES if not re.search(rf"^{name} ==", text, re.MULTILINE)]


def test_each_rule_has_a_mutation_that_must_fail() -> None:
    rules = set(re.findall(r'(?:Rule\(|THEN |ELSE )"([A-Z][a-z]\w+)"', "\n".join(MODULES.values())))
    assert rules == {case.left_out for case in CASES if case.left_out}
    assert all(case.breaks for case in CASES if case.left_out)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_short(module: str) -> None:
    assert MODULES[module].count("\n") <= 300
