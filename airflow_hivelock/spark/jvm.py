"""Calls into the driver's JVM, and Python values from Scala values."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from airflow_hivelock.locks.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"

EXCLUDED = "spark.sql.optimizer.excludedRules"
LISTS = (
    "org.apache.spark.sql.execution.datasources.PruneFileSourcePartitions",
    "org.apache.spark.sql.hive.execution.PruneHiveTablePartitions",
)
"""The rules of Spark's optimiser that list partitions and their files. They do not change the conditions of a plan."""

_UNIT = "\x1f"
"""The separator of pairs of texts. The value of a property can have several lines."""

_SEPARATOR = "\n"
"""The separator of names. The metastore escapes it in the name of a partition, and rejects it in other names."""


class Jvm:
    """The JVM of a PySpark session.

    :param spark: the SparkSession.
    :raises Unsupported: Spark Connect has no JVM here.
    """

    def __init__(self, spark: Any) -> None:
        try:
            self._jvm, self._gateway = spark._jvm, spark._sc._gateway
            self.session = spark._jsparkSession
        except Exception as error:
            raise Unsupported("this session has no JVM of its own: it is one of Spark Connect") from error
        self.skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        self.none = self._jvm.scala.Option.empty()
        self._is_instance = self._jvm.py4j.reflection.TypeUtil.isInstanceOf
        sql = self._jvm.org.apache.spark.sql
        self._dataset = sql.classic.Dataset if isinstance(sql.classic.Dataset, JavaClass) else sql.Dataset  # Spark 3.5
        self._conf = sql.internal.SQLConf
        self._handler = self._jvm.java.beans.EventHandler
        self._function = self._jvm.java.lang.Class.forName("scala.Function0")

    def is_command(self, node: Any) -> bool:
        """Whether the node is a command, which Spark runs immediately."""
        return bool(self._is_instance(COMMAND, node))

    def rows(self, session: Any, analysed: Any) -> Any:
        """Run an analysed command, or create the Dataset of an analysed query, as ``spark.sql`` does."""
        return self._dataset.ofRows(session, analysed)

    def optimised(self, session: Any, analysed: Any) -> Any:
        """The plan after Spark's optimiser.

        The optimiser does not list partitions and files here, because that takes most of its time. Only this thread of
        the JVM has the setting for that: Spark runs a function with the setting.
        """
        state = session.sessionState()
        execution = state.executePlan(analysed, self.skip)
        if isinstance(self._handler, JavaClass):  # a small Java may lack the module java.desktop
            conf = state.conf().clone()
            conf.setConfString(EXCLUDED, ",".join(filter(None, (conf.getConfString(EXCLUDED, ""), *LISTS))))
            function = self._handler.create(self._function, execution, "optimizedPlan")
            with suppress(Py4JJavaError, PySparkException):  # if the optimiser fails, the call below raises its error
                return self._conf.withExistingConf(conf, function)
        return execution.optimizedPlan()

    def parse(self, session: Any, text: str, args: Any = None) -> Any:
        """The parsed plan of *text*.

        :param session: Spark's session in the JVM.
        :param args: the parameters as SQL literals, in a dict by name or in a list. None is NULL.
        """
        parser = session.sessionState().sqlParser()
        if not args:
            return parser.parsePlan(text)
        catalyst, to_scala = self._jvm.org.apache.spark.sql.catalyst, self._jvm.org.apache.spark.api.python.PythonUtils
        if isinstance(args, dict):
            named = {name: parser.parseExpression(value or "NULL") for name, value in args.items()}
            names, found = to_scala.toSeq(list(named)), to_scala.toSeq(list(named.values()))
            ways: tuple[Callable[[], Any], ...] = (
                lambda: parser.parsePlanWithParameters(
                    text, catalyst.parser.NamedParameterContext(to_scala.toScalaMap(named))
                ),
                lambda: catalyst.analysis.NameParameterizedQuery(parser.parsePlan(text), names, found),
                lambda: catalyst.analysis.NameParameterizedQuery(parser.parsePlan(text), to_scala.toScalaMap(named)),
            )
        else:
            values_ = [parser.parseExpression(value or "NULL") for value in args]
            found = to_scala.toSeq(values_)
            ways = (
                lambda: parser.parsePlanWithParameters(text, catalyst.parser.PositionalParameterContext(found)),
                lambda: catalyst.analysis.PosParameterizedQuery(parser.parsePlan(text), found),
                lambda: catalyst.analysis.PosParameterizedQuery(parser.parsePlan(text), self._array(values_)),
            )
        for way in ways[:-1]:  # the ways of Spark 4.1, 4.0 and 3.5
            try:
                return way()
            except (Py4JError, TypeError) as error:
                if isinstance(error, Py4JJavaError):
                    raise
        return ways[-1]()

    def _array(self, values_: list[Any]) -> Any:
        array = self._gateway.new_array(self._jvm.org.apache.spark.sql.catalyst.expressions.Expression, len(values_))
        for place, each in enumerate(values_):
            array[place] = each
        return array

    def path(self, location: Any) -> Any:
        """Hadoop's absolute path for *location*: a text, or a URI, which has escapes."""
        path = self._jvm.org.apache.hadoop.fs.Path(location)
        return path.getFileSystem(self.session.sessionState().newHadoopConf()).makeQualified(path)


def kind(value: Any) -> str:
    """The simple name of the Scala class of *value*. Empty if py4j has converted *value* to a Python value."""
    if not hasattr(value, "_target_id"):
        return ""
    with suppress(Py4JError):  # only a case class has a prefix
        if name := value.productPrefix():
            return str(name)
    return str(value.getClass().getSimpleName()).removesuffix("$")


def same(one: Any, other: Any) -> bool:
    """Whether two analysed plans read and change the same tables and views in the same way."""
    # sameResult does not compare the names of tables and views. The text of a plan shows those names, but not the rest.
    return one is other or bool(one.sameResult(other) and _text(one) == _text(other) != "")


def _text(plan: Any) -> str:
    """The text of a plan without the numbers that differ in each analysis. Empty if Spark has shortened the text."""
    text = str(plan.toString())
    return "" if "more characters" in text else re.sub(r"#\d+L?|(?<=CTERelation(?:Def|Ref) )\d+", "#", text)


def items(sequence: Any) -> Iterator[Any]:
    """The items of a Seq."""
    return (sequence.apply(place) for place in range(sequence.size()))


def texts(sequence: Any) -> list[str]:
    """The texts of a Seq, from one call to the JVM."""
    return [each for each in sequence.mkString(_SEPARATOR).split(_SEPARATOR) if each]


def pairs(found: Any) -> Iterator[tuple[str, str]]:
    """The pairs of a Map of texts, from one call to the JVM."""
    for pair in found.mkString(_UNIT).split(_UNIT):
        key, _, value = pair.partition(" -> ")
        yield key, value


def optional(option: Any) -> Any:
    """The value of an Option. None if it is empty."""
    return option.get() if option.isDefined() else None


def values(found: Any) -> Iterator[tuple[str, str | None]]:
    """The pairs of a Map from texts to texts, or from texts to Options of texts."""
    for pair in items(found.toSeq()):
        value = pair._2()
        yield str(pair._1()), value if value is None or isinstance(value, str) else optional(value)


def specs(found: Any) -> Iterator[Mapping[str, str]]:
    """The partition specifications in *found*.

    A column without a value is left out, because its partitions are dynamic.

    :param found: a Map, an Option of a Map, a Seq of Maps, or a Seq of tuples whose first element is a Map.
    """
    name = kind(found)
    if name == "None":
        return
    if name == "Some":
        yield from specs(found.get())
    elif name.startswith("Tuple"):
        yield from specs(found._1())
    elif "Map" in name:
        yield {column.lower(): value for column, value in values(found) if value is not None}
    else:
        for each in items(found):
            yield from specs(each)


def elements(node: Any) -> Iterator[Any]:
    """The elements of a case class."""
    return (node.productElement(place) for place in range(node.productArity()))
