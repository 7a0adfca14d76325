"""A Spark session with the settings of the data source, and a JVM that starts quickly for small jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final, Literal

from pyspark.sql import SparkSession

from kafscale_spark.java import ensure_java

ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}
SMALL: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Local. Only the first compiler: the start of the JVM is most of the cost of a small job."""


LARGE: Final[Mapping[str, str]] = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""Local, for work that runs longer than its JVM takes to start: the second compiler too."""
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by Spark: spark-submit started the JVM, with the master and the flags of its caller."""


def session(name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session that spark-submit started, with the settings that are always needed, or one of this process."""
    ensure_java(partial(print, file=sys.stderr))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in {**ALWAYS, **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def for_job(name: str, *, large: bool = False) -> SparkSession:
    """The session of spark-submit, or a local one on all cores. Speculation is off: no task runs twice at once."""
    conf = {"spark.speculation": "false"}
    if SUBMITTED in os.environ:
        return session(name, conf)
    conf["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
    return local(name, "*", {**(LARGE if large else {}), **conf})


def local(name: str, cores: int | Literal["*"] = 2, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A local session of this process, on loopback."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return session(name, {"spark.master": f"local[{cores}]", **SMALL, **(conf or {})})
