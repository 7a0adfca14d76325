"""A Spark session with what the data source needs, and a JVM that is quick to start where work is small."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
VERSION_TIMEOUT_S: Final = 30.0
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


class NoJava(Exception):
    """Spark needs a Java that is not here."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_MIN} or newer, and {found}: install it (on Debian: apt-get install "
            "openjdk-17-jre-headless) or name it in JAVA_HOME"
        )


def session(name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session that spark-submit has begun, with what is always needed, or one of this process."""
    find_java()
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


def find_java() -> Path:
    """Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if program is None:
        raise NoJava(f"JAVA_HOME={home} has none" if home else "there is none on PATH")
    done = subprocess.run(  # noqa: S603 - the program that was just found
        [program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
    )
    found = re.search(r'version "(\d+)', done.stderr)
    if found is None or int(found[1]) < JAVA_MIN:
        raise NoJava(f"{program} is {found[1] if found else 'of no known version'}")
    return Path(program)
