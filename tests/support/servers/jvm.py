"""The JVM that the servers run on: PySpark's jars and our few classes, as one command line."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from tests.support import programs

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = Path(__file__).parent / "java"
LOG_CONFIG = SOURCES / "log4j2.properties"
COMPILE_S = 120

ARCHIVE = Path(sys.prefix, "classes.jsa")
"""Classes as a JVM has them in memory. A JVM that maps this file needs two thirds of the time for a Spark job."""

QUICK_START = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # Verifying the byte code of Hive and Spark takes a tenth of the time of a JVM that lives for seconds.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    # A JVM with other jars goes on without the file, and says nothing.
    *((f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if ARCHIVE.exists() else ()),
)
"""Options of a JVM that lives for seconds: C2 and parallel collectors cost more than they give."""

# What Hive's Kryo and Hadoop reach for by reflection.
OPENED = (
    "java.io",
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.regex",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


def java(
    main: str,
    *arguments: str,
    heap_mb: int,
    properties: Mapping[str, str] | None = None,
    path: str | None = None,
    home: Path | None = None,
) -> list[str]:
    """The command that runs ``main``; it starts fast and stays small, at the cost of speed in long runs.

    :param path: the folder of its classes, in addition to the package's own; None for PySpark's jars.
    :param home: another JDK than the machine's.
    """
    return [
        str(home / "bin" / "java") if home else _tool("java"),
        f"-Xmx{heap_mb}m",
        *QUICK_START,
        # Its own warnings would otherwise be taken for answers on stdout.
        "-XX:+DisplayVMOutputToStderr",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        f"-Dlog4j2.configurationFile={LOG_CONFIG}",
        *(f"-D{key}={value}" for key, value in (properties or {}).items()),
        "-cp",
        os.pathsep.join((str(classes()), path) if path else (f"{jars()}/*", str(classes()))),
        main,
        *arguments,
    ]


def driver(*options: str) -> dict[str, str]:
    """Settings of a Spark driver that starts fast.

    :param options: further ones of its JVM.
    """
    return {
        # The archive is for these jars in the first place. Before them, spark-submit puts a folder of settings.
        "spark.driver.extraClassPath": f"{jars()}/*",
        "spark.driver.extraJavaOptions": shlex.join((*QUICK_START, *options)),
    }


def write_site(path: Path, settings: Mapping[str, str]) -> None:
    """Write Hadoop's XML configuration file."""
    rows = "".join(
        f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
        for key, value in settings.items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<?xml version="1.0"?>\n<configuration>\n{rows}</configuration>\n')


def jars() -> Path:
    """The jars that PySpark ships, ZooKeeper's and Hive's among them."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the servers run on PySpark's jars: install pyspark", name="pyspark")
    return Path(spec.origin).parent / "jars"


@cache
def classes() -> Path:
    """A jar of our own classes, compiled once for a state of their sources and a PySpark."""
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(importlib.metadata.version("pyspark").encode())
    for source in sources:
        digest.update(source.read_bytes())
    cached = Path(tempfile.gettempdir(), f"hivelock-servers-{os.getuid()}")
    cached.mkdir(mode=0o700, exist_ok=True)
    jar = cached / f"{digest.hexdigest()[:16]}.jar"
    if not jar.exists():
        _compile(sources, jar)
    return jar


def _compile(sources: list[Path], jar: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
        target = Path(scratch, "classes")
        # It takes a JDK 17.
        command = [_tool("javac"), "-nowarn", "-proc:none", "-cp", f"{jars()}/*", "-d", str(target), *map(str, sources)]
        programs.run(command, COMPILE_S)
        packed = Path(scratch, "classes.jar")
        with zipfile.ZipFile(packed, "w") as archive:
            for file in sorted(target.rglob("*.class")):
                archive.write(file, file.relative_to(target))
        # Whole or not at all: others may compile the same sources at this moment.
        packed.replace(jar)


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name
