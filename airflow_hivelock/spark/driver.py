"""The JVM of a PySpark driver, its file systems, and Spark's own metastore client.

Spark has loaded the client's classes: Hive 2.3's from its own jars, or those of ``spark.sql.hive.metastore.version``
and ``.jars``. So the guard reaches the same metastore as the job's statements, with the job's configuration and
credentials, even Kerberos'. Thrift from Python would need both a second time in every driver. The loader of the
session's ``HiveClient`` has these classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

HIVE = "org.apache.hadoop.hive"


class Driver:
    """Calls a driver's JVM. Exceptions of the JVM are py4j's, unchanged.

    :raises Unsupported: the session is of Spark Connect, so it has no JVM here; or it has no metastore.
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
        # With client.getClass(), py4j would read all methods, and some need classes that Hive 4 no longer has.
        get_class = self._jvm.java.lang.Class.forName("java.lang.Object").getMethod("getClass", self._array("Class"))
        self._loader = get_class.invoke(client, self._array("Object")).getClassLoader()

    def metastore(self) -> Any:
        """A new ``HiveMetaStoreClient``. The caller has to close it."""
        conf = self.new("conf.HiveConf", self._hadoop, self._hadoop.getClass())
        conf.setClassLoader(self._loader)
        return self.new("metastore.HiveMetaStoreClient", conf)

    def new(self, name: str, *arguments: Any) -> Any:
        """Create an object of one of Hive's classes, with its only constructor for that number of arguments."""
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
        """The file system of *path*, and the path as an object."""
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._hadoop), found

    def _array(self, kind: str, *values: Any) -> Any:
        made = self._new_array(getattr(self._jvm.java.lang, kind), len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made
