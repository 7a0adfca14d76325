"""Makes an archive of the classes that a job's JVM loads: `python -m kafscale_spark.archive FILE`, once for an image.

Loading and checking some ten thousand classes is most of what a small job costs; from an archive they are mapped. The
JVM writes it when it ends, which is after Python has continued, so the build of an image waits until the file is
complete. An archive is for exactly this Java and this class path; other JVMs ignore it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafscale_spark.session import local

ROWS: Final = 1_000
WRITE_TIMEOUT_S: Final = 600.0


class NotWritten(Exception):
    """The JVM ended without it, or did not end."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"the JVM has not written {path}: see its output above")


class Rows(DataSource):
    """Like the data source `kafscale`, it returns Python's Arrow batches in tasks. It needs no cluster."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return "key binary, value binary, partition int, offset long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowsReader()


class RowsReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(partition) for partition in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        values = pa.array([b"%d" % row for row in range(ROWS)], pa.binary())
        places = pa.array([partition.value] * ROWS, pa.int32())
        offsets = pa.array(range(ROWS), pa.int64())
        yield pa.RecordBatch.from_arrays(
            [values, values, places, offsets], names=["key", "value", "partition", "offset"]
        )


def main() -> None:
    try:
        make(Path(sys.argv[1]))
    except NotWritten as trouble:
        sys.exit(str(trouble))


def make(path: Path) -> None:
    """Replaces an existing file. Raises NotWritten, NoJava."""
    path.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={path}"
    spark = local("archive", cores=1)
    work(spark)
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session of this process has a JVM of its own"
    spark.stop()
    wait(gateway.proc)
    if not path.is_file():
        raise NotWritten(path)


def work(spark: SparkSession) -> None:
    """Runs the features that jobs use: a Python data source, SQL, rows from and to Arrow, Python tasks."""
    spark.dataSource.register(Rows)
    spark.read.format("rows").load().createOrReplaceTempView("rows")
    counted = spark.sql(
        "select partition, cast(key as string) as k, count(*) as n, max(offset) over (partition by partition) as last "
        "from rows where offset >= 10 group by partition, key, offset order by k limit 20"
    )
    counted.show()
    again = spark.createDataFrame(counted.toArrow())
    assert again.join(counted, "k").count() > 0, "rows come back"
    found = spark.sparkContext.parallelize(range(2), 2).map(str).collect()
    assert found == ["0", "1"], "tasks run"


def wait(jvm: Popen[bytes]) -> None:
    """Closes the JVM's standard input, which ends the JVM. Raises NotWritten."""
    assert jvm.stdin is not None, "Spark's gateway ends with its standard input"
    jvm.stdin.close()
    try:
        jvm.wait(WRITE_TIMEOUT_S)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait(WRITE_TIMEOUT_S)


if __name__ == "__main__":
    main()
