"""MLlib in a PySpark session under Hive's locks: what each call locks, and when its result reads the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.clustering import LDA, KMeans, PowerIterationClustering
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import MinHashLSH, RFormula, VectorAssembler
from pyspark.ml.fpm import FPGrowth, PrefixSpan
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors
from pyspark.ml.stat import ChiSquareTest, Correlation, KolmogorovSmirnovTest, Summarizer
from pyspark.mllib.linalg.distributed import RowMatrix
from pyspark.mllib.util import MLUtils
from pyspark.sql.functions import col

from airflow_hivelock.locks import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from airflow_hivelock.locks import LockManager
    from airflow_hivelock.spark import HiveLocks

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

ROWS = "select cast(id % 2 as double) label, cast(id as double) v, id % 5 src, id * 3 % 5 dst from range(20)"

TABLES = ("create database dw", f"create table dw.m using parquet as {ROWS}")


def rows(spark: SparkSession, table: str = "dw.m") -> Any:
    items = "label", "v", "src", "dst", "array(concat('a', src), concat('b', dst)) items", "array(array(src)) sequence"
    frame = spark.table(table).selectExpr(*items, "array(label, v + 1) both")
    return frame.withColumn("features", array_to_vector(col("both")))


CALLS: dict[str, Callable[[Any], Any]] = {
    "Correlation": lambda frame: Correlation.corr(frame, "features"),
    "ChiSquareTest": lambda frame: ChiSquareTest.test(frame, "features", "label"),
    "ChiSquareTest by keywords": lambda frame: ChiSquareTest.test(
        dataset=frame, featuresCol="features", labelCol="label", flatten=True
    ),
    "KolmogorovSmirnovTest": lambda frame: KolmogorovSmirnovTest.test(frame, "v", "norm", 0.0, 1.0),
    "PrefixSpan": lambda frame: PrefixSpan().findFrequentSequentialPatterns(frame),
    "PowerIterationClustering": lambda frame: PowerIterationClustering(k=2).assignClusters(frame),
}
"""Calls that read the rows of *dw.m*, and return a DataFrame."""

LATER: dict[str, Callable[[Any], Any]] = {
    "KMeans": lambda frame: KMeans(k=2).fit(frame),
    "RFormula": lambda frame: formula("label ~ v").fit(frame),
    "RegressionEvaluator": lambda frame: RegressionEvaluator(predictionCol="v").evaluate(frame),
    "VectorAssembler of vectors": lambda frame: assembler("v", "features").transform(frame),
}
"""Other calls that read the rows of *dw.m*."""


def formula(text: str) -> RFormula:
    return RFormula(formula=text, featuresCol="made", labelCol="label")


def of_mllib(frame: Any) -> Any:
    return MLUtils.convertVectorColumnsFromML(frame.select("features"), "features")


def assembler(*columns: str) -> VectorAssembler:
    return VectorAssembler(inputCols=[*columns], outputCol="all")


@pytest.mark.parametrize("call", [*CALLS, *LATER])
def test_a_call_of_mllib_locks_its_data(call: str, spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    (CALLS | LATER)[call](rows(spark))
    assert taken() == ["dw.m"]


@pytest.mark.parametrize("call", CALLS)
def test_the_result_of_a_call_does_not_read_the_data_again(call: str, spark: SparkSession, locks: HiveLocks) -> None:
    """Its plan has no table, so nothing would lock the data then."""
    spark.sql("drop table if exists dw.gone")
    spark.sql(f"create table dw.gone using parquet as {ROWS}")
    result = CALLS[call](rows(spark, "dw.gone"))
    warehouse = (spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:")
    files = list(Path(warehouse, "dw.db", "gone").glob("*.parquet"))
    assert files
    for file in files:
        file.unlink()
    assert result.collect()


def test_a_call_that_only_describes_data_locks_nothing(spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    frame = rows(spark)
    sized = assembler("label", "v").transform(frame)
    assembler("all", "v").setOutputCol("more").transform(sized)
    frame.select(Summarizer.mean(frame.features))
    assert taken() == []


def test_a_summary_locks_the_data_that_it_reads(spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    model = LogisticRegression().fit(rows(spark))
    taken()
    assert model.coefficients.size == 2
    assert model.summary.objectiveHistory
    assert model.summary.labelCol == "label"
    assert model.summary.predictions.columns
    assert taken() == []
    for summary in (model.summary, model.evaluate(rows(spark))):
        assert summary.accuracy
        assert summary.roc.collect()
    assert taken() == ["dw.m"] * 5  # with that of evaluate


def test_a_model_locks_the_data_that_it_gets(spark: SparkSession, taken: Callable[[], list[str]]) -> None:
    frame = rows(spark)
    formula("label ~ features").fit(frame).transform(frame)
    assert taken() == ["dw.m"] * 2  # the size of the vectors is in the first row only
    topics, hashes = LDA(k=2, maxIter=1).fit(frame), MinHashLSH(inputCol="features", outputCol="h").fit(frame)
    taken()
    topics.logLikelihood(frame)
    topics.logPerplexity(frame)
    hashes.approxNearestNeighbors(frame, Vectors.dense([1.0, 1.0]), 1)
    hashes.approxSimilarityJoin(frame, frame, 1.0)
    assert taken() == ["dw.m"] * 4


@pytest.mark.parametrize("call", [lambda frame: FPGrowth().fit(frame), lambda frame: RowMatrix(of_mllib(frame))])
def test_a_model_that_reads_its_data_later_is_refused(
    call: Any, spark: SparkSession, locks: HiveLocks, manager: LockManager
) -> None:
    with pytest.raises(InvalidRequest, match=r"dw\.m later.*localCheckpoint"):
        call(rows(spark))
    call(rows(spark).localCheckpoint())
    with locks.lease(reads=["dw.m"]):
        call(rows(spark))
    assert not manager.leases()


def test_disable_restores_mllib(spark: SparkSession, manager: LockManager, locks: HiveLocks) -> None:
    locks.disable()
    history = len(manager.history())
    Correlation.corr(rows(spark), "features")
    FPGrowth().fit(rows(spark))
    assert len(manager.history()) == history
