"""A Spark session with Spark's own Kafka connector and the data source `kafscale`, for many calls: a JSON object a
line comes in, one goes out. Which there are is below, a function each; what fails is answered with its error's text.

Rows are [topic, partition, offset, time in us, type of the time, key, value, headers]; bytes are base64.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from kafscale_spark.session import local
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

PLACED = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int"
)
RUN_TIMEOUT_S = 240

Row = list[Any]
Batch = tuple[int, list[Row]]  # by its number: one that is done again after a restart has the same


def b64(some: bytes | None) -> str | None:
    return None if some is None else base64.b64encode(some).decode()


def unb64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def rows(frame: DataFrame) -> list[Row]:
    return collected(timed(frame))


def timed(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "unix_micros(timestamp) as time_us")


def collected(frame: DataFrame) -> list[Row]:
    found = []
    for row in frame.collect():
        headers = row.asDict().get("headers")
        named = None if headers is None else [[key, b64(value)] for key, value in headers]
        place = [row.topic, row.partition, row.offset, row.time_us, row.timestampType]
        found.append([*place, b64(row.key), b64(row.value), named])
    return sorted(found, key=lambda row: row[:3])


class Calls:
    """What can be asked for; the names of the arguments are those of the JSON object."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running: dict[str, tuple[StreamingQuery, list[Batch]]] = {}
        self._planned: dict[str, DataFrame] = {}

    def read(self, source: str, options: dict[str, str]) -> list[Row]:
        return rows(self._spark.read.format(source).options(**options).load())

    def plan(self, name: str, source: str, options: dict[str, str]) -> int:
        """Plans a read, and reads nothing; the number of its tasks."""
        self._planned[name] = timed(self._spark.read.format(source).options(**options).load())
        return self._planned[name].rdd.getNumPartitions()

    def planned(self, name: str) -> list[Row]:
        """Does the tasks of a plan."""
        return collected(self._planned.pop(name))

    def columns(self, source: str, options: dict[str, str]) -> str:
        return self._spark.read.format(source).options(**options).load().schema.simpleString()

    def write(self, rows: list[Row], options: dict[str, str]) -> None:
        """Rows are [key, value, headers, topic, partition]; what is null there the producer chooses."""
        data = [
            (
                unb64(key),
                unb64(value),
                headers and [(name, unb64(each)) for name, each in headers],
                topic,
                part,
            )
            for key, value, headers, topic, part in rows
        ]
        self._spark.createDataFrame(data, PLACED).write.format("kafka").options(**options).save()

    def stream(self, options: dict[str, str], checkpoint: str) -> list[Batch]:
        """Reads what there is, and ends; the micro-batches."""
        writer, batches = self._collecting(options, checkpoint)
        run(writer.trigger(availableNow=True).start())
        return batches

    def copy(self, options: dict[str, str], to: dict[str, str], checkpoint: str) -> int:
        """Streams what there is into a topic, values in upper case; how many micro-batches it took."""
        frame = self._spark.readStream.format("kafka").options(**options).load()
        changed = frame.selectExpr("key", "upper(cast(value as string)) as value", "partition", "headers")
        sink = changed.writeStream.format("kafka").options(**to).option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        run(query)
        return len([each for each in query.recentProgress if each.numInputRows])

    def begin(self, name: str, options: dict[str, str], checkpoint: str) -> None:
        """Begins a stream that goes on until it is stopped."""
        writer, batches = self._collecting(options, checkpoint)
        self._running[name] = (writer.start(), batches)

    def _collecting(self, options: dict[str, str], checkpoint: str) -> tuple[DataStreamWriter, list[Batch]]:
        batches: list[Batch] = []
        frame = self._spark.readStream.format("kafka").options(**options).load()
        writer = frame.writeStream.foreachBatch(lambda batch, number: batches.append((number, rows(batch))))
        return writer.option("checkpointLocation", checkpoint), batches

    def count(self, name: str) -> int:
        """How many rows a stream has given so far."""
        query, batches = self._running[name]
        failure = query.exception()
        if failure is not None:
            raise failure
        return sum(len(batch) for _, batch in batches)

    def end(self, name: str) -> list[Batch]:
        """Stops a stream, wherever it is; the micro-batches that it had given."""
        query, batches = self._running.pop(name)
        query.stop()
        return batches


def run(query: StreamingQuery) -> None:
    if not query.awaitTermination(RUN_TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"a stream did not come to its end in {RUN_TIMEOUT_S} s")


def main(jars: str, folder: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM prints as well
    found = ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar")))
    conf = {
        "spark.jars": found,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    }
    calls = Calls(local("connector", conf=conf))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": getattr(calls, asked.pop("do"))(**asked)}
        except (PySparkException, Py4JError, TimeoutError) as failure:
            answer = {"error": str(failure)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
