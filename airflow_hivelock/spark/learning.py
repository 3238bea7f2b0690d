"""Replaces the methods of Spark's MLlib that read the data of a DataFrame at once, while locks are enabled.

MLlib runs in the JVM. PySpark hands DataFrames to it in a few methods, which are replaced. A method that only describes
data is not replaced, such as the ``transform`` of most models.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial, reduce, wraps
from importlib import import_module
from inspect import isclass, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_hivelock.spark.statements import StatementLocks

READ_FIRST = (
    "pass it DataFrame.localCheckpoint(), which reads the data now, or use it under a lease that names its data, "
    "HiveLocks.lease(reads=[…])"
)

_READ_NOTHING = frozenset(
    """
    cluster k logLikelihood numIter objectiveHistory predictions rank toString totalIterations trainingCost
    """.split()  # noqa: SIM905
)
"""The methods of summaries in the JVM that read no data. Those with names of columns read none, either."""

_OVER_AN_RDD = frozenset(
    """
    ChiSquareTest.test PowerIterationClustering.assignClusters PrefixSpan.findFrequentSequentialPatterns
    """.split()  # noqa: SIM905
)
"""The methods whose result is an RDD that reads the data again, as do the curves of summaries."""


class Learning:
    """Replaces the methods of MLlib.

    :param change: replaces one method of a class, with a function that makes the new method from the original one.
    :param locks_of: returns the locks of a session. It returns None if the call is a part of a statement.
    :param frame: PySpark's class of DataFrames with a JVM.
    """

    def __init__(
        self,
        change: Callable[[type, str, Callable[[Any], Any]], None],
        locks_of: Callable[[Any], StatementLocks | None],
        frame: type,
    ) -> None:
        self._change = change
        self._locks_of = locks_of
        self._frame = frame

    def change_all(self) -> None:
        """Replace the methods.

        :raises ImportError: this Python has no NumPy, and so no MLlib.
        """
        module = partial(import_module, package="pyspark.ml")
        locked = self._locked(self._frames)
        wrapper, features, patterns = module(".wrapper"), module(".feature"), module(".fpm")
        self._change(wrapper.JavaEstimator, "_fit_java", locked)
        self._change(patterns.FPGrowth, "_fit_java", self._refusing("a model of FPGrowth"))
        self._change(module(".evaluation").JavaEvaluator, "_evaluate", locked)
        self._change(wrapper.JavaWrapper, "_call_java", self._calling)
        self._change(patterns.PrefixSpan, "findFrequentSequentialPatterns", locked)
        self._change(module(".clustering").PowerIterationClustering, "assignClusters", locked)
        for cls, name in _tests_of(module(".stat")):
            self._change(cls, name, locked)
        for cls in (features.VectorAssembler, features.RFormulaModel):
            self._change(cls, "_transform", self._locked(self._frames_read_for_a_size))
        with suppress(ImportError):
            matrices = import_module("pyspark.mllib.linalg.distributed")
            for cls in (matrices.RowMatrix, matrices.IndexedRowMatrix):
                self._change(cls, "__init__", self._refusing("a matrix over a DataFrame"))

    def _frames(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return [each for each in (*args, *kwargs.values()) if isinstance(each, self._frame)]

    def _frames_read_for_a_size(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The DataFrame if its first row is read at once. The size of a column of vectors is in no schema then."""
        of, frames = args[0], self._frames(args, kwargs)
        if not frames:
            return []
        fields = {field.name: field for field in frames[0].schema.fields}
        used = of.getInputCols() if hasattr(of, "getInputCols") else fields
        return [] if all(name in fields and _has_size(fields[name]) for name in used) else frames

    def _calling(self, original: Any) -> Any:
        """The replacement of the method that calls the JVM for many others."""

        def frames(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
            of, name = args[:2]
            found = self._frames(args, kwargs)
            # A summary computes most values when they are first used, from predictions over its data.
            return [original(of, "predictions")] if not found and _computes(of, name) else found

        return self._locked(frames)(original)

    def _locked(self, frames: Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]) -> Callable[[Any], Any]:
        """The replacement of a method that reads DataFrames: the method runs under their locks.

        :param frames: returns the DataFrames that the method reads, from its arguments.
        """

        def made(original: Any) -> Any:
            is_static = isinstance(original, staticmethod)
            call = original.__func__ if is_static else original

            @wraps(call)
            def method(*args: Any, **kwargs: Any) -> Any:
                data = frames(args, kwargs)
                locks = self._locks_of(data[0].sparkSession) if data else None
                if locks is None:
                    return call(*args, **kwargs)
                name = call.__qualname__ if is_static else _name(call.__name__, *args)
                # One product, so that the locks of all DataFrames are granted together.
                with locks.action(reduce(lambda all_, each: all_.crossJoin(each), data), name):
                    found = call(*args, **kwargs)
                    return found.localCheckpoint() if _reads_again(name) else found

            return staticmethod(method) if is_static else method

        return made

    def _refusing(self, what: str) -> Callable[[Any], Any]:
        """Return the replacement of a method. The result of the method reads the DataFrame later.

        :param what: the result, as the message names it.
        """

        def made(original: Any) -> Any:
            @wraps(original)
            def method(*args: Any, **kwargs: Any) -> Any:
                data = self._frames(args, kwargs)
                locks = self._locks_of(data[0].sparkSession) if data else None
                if locks is not None:
                    locks.refuse_later(data[0], what, READ_FIRST)
                return original(*args, **kwargs)

            return method

        return made


def _tests_of(stat: Any) -> Iterator[tuple[type, str]]:
    """The static methods of ``pyspark.ml.stat`` that take a DataFrame. They call the JVM by themselves."""
    for cls in [each for each in vars(stat).values() if isclass(each) and each.__module__ == stat.__name__]:
        for name, method in vars(cls).items():
            if isinstance(method, staticmethod) and "dataset" in signature(method.__func__).parameters:
                yield cls, name


def _has_size(field: Any) -> bool:
    """Whether the size of a column is known without its data: the schema has it, or the column has no vectors."""
    known = (field.metadata or {}).get("ml_attr", {}).keys() & {"attrs", "num_attrs"}
    return bool(known) or type(field.dataType).__name__ != "VectorUDT"


def _computes(of: Any, name: str) -> bool:
    """Whether the object is a summary, and the call *name* computes one of its values."""
    is_summary = type(of).__name__.endswith("Summary") and hasattr(type(of), "predictions")
    return is_summary and name not in _READ_NOTHING and not name.endswith("Col")


def _name(method: str, of: Any, *args: Any) -> str:
    """The call, as listings show it: ``KMeans.fit``."""
    called = args[0] if method == "_call_java" else method.removeprefix("_").removesuffix("_java")
    return f"{type(of).__name__}.{called}"


def _reads_again(name: str) -> bool:
    return name in _OVER_AN_RDD or ("Summary." in name and name.endswith((".roc", ".pr", "ByThreshold")))
