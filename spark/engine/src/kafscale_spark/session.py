"""A Spark session with what the data source needs, and a JVM that is quick to start where work is small."""

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
"""On this machine alone. The first compiler only: a JVM's start is most of what a small job costs."""


LARGE: Final[Mapping[str, str]] = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""On this machine, for work that runs for longer than its JVM takes to start: the second compiler too."""
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Spark's own: spark-submit began the JVM, and its master and flags are whoever submitted's."""


def session(name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session that spark-submit has begun, with what is always needed, or one of this process."""
    ensure_java(partial(print, file=sys.stderr))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in {**ALWAYS, **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def for_job(name: str, *, large: bool = False) -> SparkSession:
    """The session of spark-submit, or one on all of this machine's cores. Work is never done twice at once."""
    conf = {"spark.speculation": "false"}
    if SUBMITTED in os.environ:
        return session(name, conf)
    conf["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
    return local(name, "*", {**(LARGE if large else {}), **conf})


def local(name: str, cores: int | Literal["*"] = 2, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session of this process alone, on loopback."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return session(name, {"spark.master": f"local[{cores}]", **SMALL, **(conf or {})})
