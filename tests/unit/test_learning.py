"""Each method of ``pyspark.ml`` that takes a DataFrame takes its locks, or is known to read nothing by itself."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pyspark.ml
import pytest

from airflow_hivelock.spark import interception
from airflow_hivelock.spark.learning import Learning
from airflow_hivelock.spark.statements import StatementLocks

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(pyspark.ml.__file__).parent

IN_PYTHON = "it only calls methods of DataFrames and of its stages, which lock for themselves"
ABSTRACT = "it calls the method of a subclass"
REMOTE = "only Spark Connect calls it"
ON_EXECUTORS = "it gets DataFrames of pandas, on an executor"

READ_NOTHING = {
    "base.Estimator": ABSTRACT,
    "base.Transformer": ABSTRACT,
    "base.UnaryTransformer._transform": "it adds a column",
    "classification.OneVsRest": IN_PYTHON,
    "evaluation.Evaluator": ABSTRACT,
    "functions": ON_EXECUTORS,
    "pipeline": IN_PYTHON,
    "torch.distributor": IN_PYTHON,
    "tuning": IN_PYTHON,
    "util._cache_spark_dataset": "only parts of pyspark.ml call it, in Python",
    "util.HasTrainingSummary._summary_dataset": REMOTE,
    "util.try_remote": "it calls the method that it decorates",
    "wrapper.JavaEstimator._fit": "it calls _fit_java",
    "wrapper.JavaTransformer._transform": "it describes data; those that read a row are replaced by themselves",
}
"""Beginnings of names of functions that take a DataFrame, and why they need no locks of their own."""


def takes_a_frame(function: ast.FunctionDef) -> bool:
    of = function.args
    types = [each.annotation for each in (*of.posonlyargs, *of.args, *of.kwonlyargs) if each.annotation]
    return any("DataFrame" in ast.unparse(each) for each in types)


def functions(node: ast.AST, above: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions in *node* that take a DataFrame, with their dotted names."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            name = f"{above}.{each.name}"
            if isinstance(each, ast.FunctionDef) and takes_a_frame(each):
                yield name, each
            yield from functions(each, name)
        else:
            yield from functions(each, above)


def all_functions() -> dict[str, ast.FunctionDef]:
    """Those of PySpark with a JVM. ``pyspark.ml.connect`` is in Python, as are the tests."""
    files = [each for each in ROOT.rglob("*.py") if each.relative_to(ROOT).parts[0] not in ("connect", "tests")]
    dotted = {each: ".".join(each.relative_to(ROOT).with_suffix("").parts) for each in files}
    return dict(found for file, name in dotted.items() for found in functions(ast.parse(file.read_text()), name))


@pytest.fixture
def replaced() -> Iterator[set[str]]:
    """The replaced methods of ``pyspark.ml``, by their dotted names, while they are replaced."""
    locks = StatementLocks("the context", Mock(), Mock())
    interception.install(locks)
    prefix = f"{pyspark.ml.__name__}."
    yield {f"{cls.__module__.removeprefix(prefix)}.{cls.__name__}.{name}" for cls, name, _ in interception._changed}
    interception.remove(locks)


FUNCTIONS = all_functions()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_method_that_takes_a_frame_takes_its_locks(name: str, replaced: set[str]) -> None:
    """Add a new method of PySpark to Learning.change_all if it reads, or to READ_NOTHING."""
    calls = {ast.unparse(each.func) for each in ast.walk(FUNCTIONS[name]) if isinstance(each, ast.Call)}
    by_the_jvm = "wrapper.JavaWrapper._call_java" in replaced and "self._call_java" in calls
    listed = any(name.startswith(each) for each in READ_NOTHING)
    assert name in replaced or by_the_jvm or listed or name.endswith("Model._summary_dataset")


def test_the_list_has_the_functions_of_pyspark() -> None:
    assert len(FUNCTIONS) > 30
    assert {"stat.Correlation.corr", "fpm.PrefixSpan.findFrequentSequentialPatterns"} <= FUNCTIONS.keys()


def methods_of(names: set[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        module, cls, method = name.rsplit(".", 2)
        of = getattr(import_module(f"pyspark.ml.{module}"), cls)
        found[name] = next((vars(each)[method] for each in of.__mro__ if method in vars(each)), None)
    return found


ML = ("classification.", "clustering.", "evaluation.", "feature.", "fpm.", "stat.", "wrapper.")


def test_all_methods_are_restored(replaced: set[str]) -> None:
    names = {name for name in replaced if name.startswith(ML)}
    during = methods_of(names)
    [locks] = interception._enabled
    interception.remove(locks)
    before = methods_of(names)
    assert names
    assert not [name for name in names if before[name] is during[name]]
    assert "learning" not in repr([getattr(each, "__code__", None) for each in before.values()])


class Frame:
    sparkSession = None

    def crossJoin(self, other: Frame) -> tuple[Frame, Frame]:
        return self, other


class JavaWrapper:
    def _call_java(self, name: str, *args: object) -> str:
        return name


def test_a_call_without_a_frame_asks_for_nothing() -> None:
    locks_of = Mock(return_value=None)
    learning = Learning(Mock(), locks_of, Frame)
    call = learning._calling(JavaWrapper._call_java)
    assert call(JavaWrapper(), "coefficients") == "coefficients"
    assert not locks_of.called
    assert call(JavaWrapper(), "evaluate", Frame()) == "evaluate"
    assert locks_of.called


def test_two_frames_are_locked_together() -> None:
    action = Mock(return_value=Mock(__enter__=Mock(), __exit__=Mock(return_value=None)))
    learning = Learning(Mock(), lambda session: Mock(action=action), Frame)
    one, two = Frame(), Frame()
    learning._calling(JavaWrapper._call_java)(JavaWrapper(), "approxSimilarityJoin", one, two)
    action.assert_called_once_with((one, two), "JavaWrapper.approxSimilarityJoin")
