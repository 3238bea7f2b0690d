"""Driver: the JVM of a PySpark driver, its file systems, and the metastore client of the Hive that its Spark speaks with.

The client's classes are those that Spark itself has loaded: out of its own jars, Hive 2.3's, or out of those that
``spark.sql.hive.metastore.version`` and ``.jars`` name. So whatever metastore the job's own statements reach, the guard
reaches, with the job's own configuration and credentials, Kerberos' among them. Thrift from Python would need both anew,
in every driver. Spark has the names: its session's ``HiveClient`` was loaded by the same loader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

HIVE = "org.apache.hadoop.hive"


class Driver:
    """What a driver's JVM is asked for; its exceptions are passed on as py4j gives them.

    :raises Unsupported: Spark Connect has no JVM here, and a session without Hive's catalog no metastore.
    """

    def __init__(self, spark: Any) -> None:
        try:
            self._jvm, self._hadoop = spark._jvm, spark._jsc.hadoopConfiguration()
            self._new_array = spark._sc._gateway.new_array
        except Exception as error:
            raise Unsupported("publishing needs the driver's own JVM, which Spark Connect does not give") from error
        if spark.conf.get("spark.sql.catalogImplementation", None) != "hive":
            raise Unsupported(
                "publishing needs a session that knows Hive's metastore: build it with enableHiveSupport()"
            )
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
        """An object of one of Hive's classes, by its only constructor of that many arguments."""
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
        """A path, behind its file system."""
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._hadoop), found

    def _array(self, kind: str, *values: Any) -> Any:
        made = self._new_array(getattr(self._jvm.java.lang, kind), len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made
