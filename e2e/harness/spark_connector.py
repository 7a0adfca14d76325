"""Spark with its own Kafka connector and the data source `kafscale`: one session, in a process that is asked by lines.

Rows have one form, from a consumer and from Spark in either format, so that tests can compare them.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from e2e.harness.clients import HERE, maven_built, require
from e2e.harness.services import dying_with_parent
from e2e.harness.spark import spark_python

CALL_TIMEOUT_S = 300.0
READ_TIMEOUT_S = 60.0
PROGRAM = HERE / "spark" / "connector.py"


class SparkFailed(Exception):
    """What Spark said of a query that it could not do."""


@dataclass(frozen=True, slots=True, order=True)
class Row:
    topic: str
    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int  # 0: chosen by the producer, 1: when it was appended
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None = None

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class ToWrite:
    """What is None the producer chooses; a topic may be given for all rows instead."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    topic: str | None = None
    partition: int | None = None


@cache
def connector_jars() -> Path:
    """The folder with the connector and what it needs besides Spark."""
    require("Spark's Kafka connector", "java", "mvn")
    return maven_built("spark") / "lib"


@dataclass(slots=True)
class Spark:
    """For one thread at a time."""

    process: subprocess.Popen[str]

    def read(self, source: str, options: Mapping[str, str]) -> list[Row]:
        return [_row(found) for found in self._ask("read", source=source, options=options)]

    def plan(self, name: str, source: str, options: Mapping[str, str]) -> int:
        """Plans a read, whose rows `planned` reads later. The result is the number of its tasks."""
        return int(self._ask("plan", name=name, source=source, options=options))

    def planned(self, name: str) -> list[Row]:
        return [_row(found) for found in self._ask("planned", name=name)]

    def columns(self, source: str, options: Mapping[str, str]) -> str:
        return str(self._ask("columns", source=source, options=options))

    def write(self, rows: Sequence[ToWrite], options: Mapping[str, str]) -> None:
        self._ask("write", rows=[_written(row) for row in rows], options=options)

    def stream(self, options: Mapping[str, str], checkpoint: Path) -> dict[int, list[Row]]:
        """Reads what there is; the rows of each micro-batch by its number."""
        return _batches(self._ask("stream", options=options, checkpoint=str(checkpoint)))

    def copy(self, options: Mapping[str, str], to: Mapping[str, str], checkpoint: Path) -> int:
        """Streams all records into a topic, values in upper case. The result is the number of micro-batches."""
        return int(self._ask("copy", options=options, to=to, checkpoint=str(checkpoint)))

    def begin(self, name: str, options: Mapping[str, str], checkpoint: Path) -> None:
        self._ask("begin", name=name, options=options, checkpoint=str(checkpoint))

    def count(self, name: str) -> int:
        """How many rows a stream that was begun has given. Raises SparkFailed when it failed."""
        return int(self._ask("count", name=name))

    def end(self, name: str) -> dict[int, list[Row]]:
        """Stops it wherever it is; its micro-batches."""
        return _batches(self._ask("end", name=name))

    def _ask(self, what: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        deadline = threading.Timer(CALL_TIMEOUT_S, self.process.kill)
        deadline.start()
        try:
            self.process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            deadline.cancel()
        assert line, f"Spark ended, or {CALL_TIMEOUT_S:.0f} s went by, in {what} {arguments}"
        said = json.loads(line)
        if "error" in said:
            raise SparkFailed(said["error"])
        return said["answer"]


@contextmanager
def spark(folder: Path) -> Iterator[Spark]:
    """A session that begins with the first question; what it says besides is in `folder`/spark.log."""
    command = [str(spark_python()), str(PROGRAM), str(connector_jars()), str(folder)]
    with (
        (folder / "spark.log").open("w") as log,
        subprocess.Popen(
            [*dying_with_parent(), *command],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield Spark(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(READ_TIMEOUT_S)  # the JVM ends with it
        finally:
            process.kill()


def _row(found: list[Any]) -> Row:
    topic, partition, offset, timestamp_us, kind, key, value, headers = found
    named = None if headers is None else tuple((name, _bytes(each)) for name, each in headers)
    return Row(topic, partition, offset, timestamp_us, kind, _bytes(key), _bytes(value), named)


def _batches(found: list[Any]) -> dict[int, list[Row]]:
    return {number: [_row(row) for row in batch] for number, batch in found}


def _written(row: ToWrite) -> list[Any]:
    headers = None if row.headers is None else [[name, _text(value)] for name, value in row.headers]
    return [_text(row.key), _text(row.value), headers, row.topic, row.partition]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(some: bytes | None) -> str | None:
    return None if some is None else base64.b64encode(some).decode()


def consumed(bootstrap: str, *topics: str) -> list[Row]:
    """All of some topics, as librdkafka reads them up to their ends; sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "beside-spark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        found = consumer.list_topics(timeout=READ_TIMEOUT_S).topics
        places = [(topic, part) for topic in topics for part in found[topic].partitions]
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        return sorted(_until_ends(consumer, set(places)))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, left: set[tuple[str, int]]) -> Iterator[Row]:
    deadline = time.monotonic() + READ_TIMEOUT_S
    while left:
        assert time.monotonic() < deadline, f"no end of {left} in {READ_TIMEOUT_S:.0f} s"
        for message in consumer.consume(1_000, timeout=0.2):
            failure = message.error()
            if failure is None:
                yield _seen(message)
            elif failure.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic() or "", message.partition() or 0))
            else:
                raise KafkaException(failure)


def _seen(message: Message) -> Row:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers()
    return Row(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms * 1_000,
        kind - 1,  # librdkafka counts from "not available"
        message.key(),
        message.value(),
        None if headers is None else tuple(headers),
    )
