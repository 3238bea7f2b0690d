"""Values of Scala in the driver's JVM, as Python's."""

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
"""The rules of Spark's optimiser that list partitions and their files. They leave the conditions as they are."""

_UNIT = "\x1f"
"""Between pairs of texts. A property may have several lines."""

_SEPARATOR = "\n"
"""Between texts. The metastore escapes it in the name of a partition, and takes it in no other name."""


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
        """Whether Spark runs the node as a command, at once."""
        return bool(self._is_instance(COMMAND, node))

    def rows(self, session: Any, analysed: Any) -> Any:
        """The Dataset of an analysed plan, made as ``spark.sql`` makes it: a command runs at once."""
        return self._dataset.ofRows(session, analysed)

    def optimised(self, session: Any, analysed: Any) -> Any:
        """The plan as Spark's optimiser narrows it, without a list of partitions and files: that takes most of the time.

        The setting for that is one of this thread of the JVM only. Spark takes a function to run under it.
        """
        state = session.sessionState()
        execution = state.executePlan(analysed, self.skip)
        if isinstance(self._handler, JavaClass):  # a small Java may lack the module java.desktop
            conf = state.conf().clone()
            conf.setConfString(EXCLUDED, ",".join(filter(None, (conf.getConfString(EXCLUDED, ""), *LISTS))))
            function = self._handler.create(self._function, execution, "optimizedPlan")
            with suppress(Py4JJavaError, PySparkException):  # the optimiser fails: the next call gives its own error
                return self._conf.withExistingConf(conf, function)
        return execution.optimizedPlan()

    def parse(self, session: Any, text: str, args: Any = None) -> Any:
        """The parsed plan of *text*.

        :param session: Spark's session in the JVM.
        :param args: the values of its parameters as SQL, by name or a list; None is NULL.
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
        for way in ways[:-1]:  # of Spark 4.1, of 4.0, and of 3.5
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

    def path(self, text: str) -> Any:
        """Hadoop's path of that text, in full."""
        path = self._jvm.org.apache.hadoop.fs.Path(text)
        return path.getFileSystem(self.session.sessionState().newHadoopConf()).makeQualified(path)


def kind(value: Any) -> str:
    """The simple name of the class of *value*; empty for a value that Python has made its own."""
    if not hasattr(value, "_target_id"):
        return ""
    with suppress(Py4JError):  # it is no case class
        if name := value.productPrefix():
            return str(name)
    return str(value.getClass().getSimpleName()).removesuffix("$")


def same(one: Any, other: Any) -> bool:
    """Whether two analysed plans read and change the same tables and views, in the same way."""
    # Spark compares no names of tables and views, and the text of a plan does not show everything else.
    return one is other or bool(one.sameResult(other) and _text(one) == _text(other) != "")


def _text(plan: Any) -> str:
    """The text of a plan without the numbers that each analysis gives anew; empty if Spark has cut it."""
    text = str(plan.toString())
    return "" if "more characters" in text else re.sub(r"#\d+L?|(?<=CTERelation(?:Def|Ref) )\d+", "#", text)


def items(sequence: Any) -> Iterator[Any]:
    """The items of a Seq."""
    return (sequence.apply(place) for place in range(sequence.size()))


def texts(sequence: Any) -> list[str]:
    """The texts of a Seq, in one question."""
    return [each for each in sequence.mkString(_SEPARATOR).split(_SEPARATOR) if each]


def pairs(found: Any) -> Iterator[tuple[str, str]]:
    """The pairs of a Map of texts, in one question."""
    for pair in found.mkString(_UNIT).split(_UNIT):
        key, _, value = pair.partition(" -> ")
        yield key, value


def optional(option: Any) -> Any:
    """The value of an Option, or None."""
    return option.get() if option.isDefined() else None


def values(found: Any) -> Iterator[tuple[str, str | None]]:
    """The pairs of a Map of texts. A value that is an Option may be None."""
    for pair in items(found.toSeq()):
        value = pair._2()
        yield str(pair._1()), value if value is None or isinstance(value, str) else optional(value)


def specs(found: Any) -> Iterator[Mapping[str, str]]:
    """Partition specifications: of a Map, an Option of one, or a Seq of Maps or of pairs that begin with one.

    A column without a value is left out: its partitions are dynamic.
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
    """What a case class holds."""
    return (node.productElement(place) for place in range(node.productArity()))
