"""Driver: the JVM of a PySpark driver, its file systems, and the metastore client of its Spark.

Spark itself has loaded the client's classes: from its own jars, Hive 2.3's, or from those that
``spark.sql.hive.metastore.version`` and ``.jars`` name. So the guard reaches the same metastore as the job's own
statements. It uses the job's own configuration and credentials, even Kerberos'. Thrift from Python would need both a
second time in every driver. Spark has the names: the same loader has loaded its session's ``HiveClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

HIVE = "org.apache.hadoop.hive"


class Driver:
    """The calls to a driver's JVM; its exceptions come unchanged from py4j.

    :raises Unsupported: Spark Connect has no JVM here, and a session without Hive's catalog no metastore.
    """

    def __init__(self, spark: Any) -> None:
        try:
            self._jvm, self._hadoop = spark._jvm, spark._jsc.hadoopConfiguration()
            self._new_array = spark._sc._gateway.new_array
        except Exception as error:
            raise Unsupported(
                "publishing needs the driver's own JVM, but this session is of Spark Connect. Run the job without Spark Connect"
            ) from error
        if spark.conf.get("spark.sql.catalogImplementation", None) != "hive":
            raise Unsupported("publishing needs a session with Hive's metastore. Build it with enableHiveSupport()")
        client = spark._jsparkSession.sharedState().externalCatalog().unwrapped().client()
        # Not client.getClass(): py4j then reads all its methods, which name classes that Hive 4 no longer has.
        get_class = self._jvm.java.lang.Class.forName("java.lang.Object").getMethod("getClass", self._array("Class"))
        self._loader = get_class.invoke(client, self._array("Object")).getClassLoader()

    def metastore(self) -> Any:
        """A ``HiveMetaStoreClient`` of the caller's own, to be closed."""
        conf = self.new("conf.HiveConf", self._hadoop, self._hadoop.getClass())
        conf.setClassLoader(self._loader)
        return self.new("metastore.HiveMetaStoreClient", conf)

    def new(self, name: str, *arguments: Any) -> Any:
        """Make an object of one of Hive's classes, by its only constructor with that many arguments."""
        constructors = self._loader.loadClass(f"{HIVE}.{name}").getConstructors()
        (constructor,) = (one for one in constructors if one.getParameterCount() == len(arguments))
        return constructor.newInstance(self._array("Object", *arguments))

    def list(self, values: Iterable[str]) -> Any:
        """A ``java.util.List``."""
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def map(self) -> Any:
        """A ``java.util.Map``, empty."""
        return self._jvm.java.util.HashMap()

    def file(self, path: str) -> tuple[Any, Any]:
        """A path, after its file system."""
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._hadoop), found

    def _array(self, kind: str, *values: Any) -> Any:
        made = self._new_array(getattr(self._jvm.java.lang, kind), len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made
