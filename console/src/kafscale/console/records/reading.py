"""Windows of partitions, read by a consumer of Kafka that commits nothing and joins no group.

Law R4: a read ends after READ_TIMEOUT_S, and when it has READ_BYTES_MAX.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from kafscale.client.admin_client import Client, Refusal, trouble_of
from kafscale.client.json_lines import Headers
from kafscale.client.topics import of_topic
from kafscale.console.records.merge import Span

READ_TIMEOUT_S: Final = 10.0
READ_BYTES_MAX: Final = 8 << 20
WINDOW_RECORDS_MAX: Final = 1_000
_POLL_S: Final = 0.1
_FETCH_BYTES: Final = 256 << 10
_NO_GROUP: Final = "kafscale-console"
"""librdkafka wants a name. Nothing is committed and nobody joins, so the cluster never hears of it."""
_TIME_KINDS: Final = {0: None, 1: "create", 2: "append"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_kind: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def record_of(message: Message[Any, Any]) -> Record:
    kind, time_ms = message.timestamp()
    headers: Any = message.headers() or ()  # a list of pairs
    return Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=time_ms,
        timestamp_kind=_TIME_KINDS.get(kind),
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers),
        leader_epoch=message.leader_epoch(),
    )


@dataclass(slots=True)
class Budget:
    """Of one request, over all its reads."""

    until_s: float = field(default_factory=lambda: time.monotonic() + READ_TIMEOUT_S)
    bytes_left: int = READ_BYTES_MAX

    @property
    def spent(self) -> str | None:
        """Why the request reads no more."""
        if self.bytes_left <= 0:
            return "bytes"
        return "time" if time.monotonic() >= self.until_s else None


@dataclass(slots=True)
class Read:
    """Of one window. `end`: all before it was read; the window's end if `whole`."""

    end: int
    records: list[Record] = field(default_factory=list)
    whole: bool = False


@contextmanager
def consumer_of(client: Client, *, committed: bool, wait_ms: int = 10) -> Iterator[Consumer]:
    """`wait_ms`: how long the server waits for a record after the end."""
    refused = Refusal(client.bootstrap)
    consumer = Consumer(
        {
            **client.settings(refused),
            "group.id": _NO_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": wait_ms,
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.min.messages": WINDOW_RECORDS_MAX,
            "queued.max.messages.kbytes": READ_BYTES_MAX >> 10,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, topic: str, windows: Mapping[int, Span], budget: Budget) -> dict[int, Read]:
    """By partition. A window is not read whole if it has many records, or the budget is spent. Raises KafkaTrouble."""
    found = {partition: Read(window.start) for partition, window in windows.items()}
    left = set(windows)
    places = [TopicPartition(topic, number, window.start) for number, window in windows.items()]
    consumer.assign(places)
    consumer.resume(places)  # an earlier read has paused them
    while left and budget.spent is None:
        message = consumer.poll(_POLL_S)
        if message is None or not _goes_on(topic, message) or (partition := message.partition()) not in left:
            continue
        mine, window = found[partition], windows[partition]
        record = record_of(message)
        if message.error() is None and record.offset < window.end:
            mine.records.append(record)
            mine.end = record.offset + 1
            budget.bytes_left -= record.size
        else:  # the partition's end, or a gap at the window's end
            mine.end = window.end
        mine.whole = mine.end == window.end
        if mine.whole or len(mine.records) == WINDOW_RECORDS_MAX:
            left.discard(partition)
            consumer.pause([TopicPartition(topic, partition)])  # so that the rest is not fetched
    return found


def _goes_on(topic: str, message: Message[Any, Any]) -> bool:
    """Whether it is a record or the partition's end. Raises KafkaTrouble for an error after which no record comes."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return True
    if not error.retriable():
        raise trouble_of(of_topic(topic), error)
    return False
