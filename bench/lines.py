"""The lines of the table, each measured the same way on every system."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import produce

from bench.results import ROLES, Figures, Line
from bench.spent import Spent, spent
from bench.systems import System
from bench.tools import RECORD_BYTES, consumer_performance, load, producer_performance
from e2e.harness.raw import Wire

RECORDS = 500_000
ATTEMPT_S = 10  # one pass of a producer; three take half a minute, also on a slow system
SEGMENTS = 3000
REQUESTS = 60
ATTEMPTS = 2  # of measured passes
GB = 1e9
HUNDRED_THOUSAND = 1e5
WIDE = 12  # partitions of one request; no client library sends this on purpose
PRODUCE_VERSION = 9
NOT_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
NOT_YET_S = 30.0
RETRY_S = 0.2


Report = Callable[[Line, Figures], None]
Take = Callable[[System, int], Figures]
"""Measures one line on a system, over the records divided by a factor."""


NAMES = {line.name.lower(): line for line in Line}


def named(names: Iterable[str]) -> set[Line]:
    """A line that reads brings the line that writes what it reads."""
    lines = {NAMES[name] for name in names}
    return lines | {Line.TWELVE_PARTITIONS} if lines & _READING else lines


def measure(system: System, *, lines: Container[Line], quick: bool, report: Report) -> dict[Line, Figures]:
    """Starts the system, measures those of the lines that it has, stops it."""
    figures: dict[Line, Figures] = {}
    factor = 10 if quick else 1
    system.start()
    try:
        for line, take in _STEPS.items():
            if line in lines and line in system.lines:
                figures[line] = take(system, factor)
                report(line, figures[line])
    finally:
        system.stop()
    return figures


def create(system: System, topic: str, partitions: int) -> str:
    admin = AdminClient(_quiet(system))
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    return topic


def _quiet(system: System) -> dict[str, Any]:
    """A client's settings. The client does not log connections that it loses when the system restarts."""
    return {"bootstrap.servers": system.bootstrap, "log_level": 0, "error_cb": lambda _error: None}


def _produce(partitions: int, record_bytes: int = RECORD_BYTES) -> Take:
    def take(system: System, factor: int) -> Figures:
        small = "" if record_bytes == RECORD_BYTES else f"-{record_bytes}"
        topic = create(system, f"perf-{partitions}{small}", partitions)

        def rate(records: int) -> float:
            found = producer_performance(system.bootstrap, topic, records, record_bytes=record_bytes)
            return found["per_s"]

        most = RECORDS * RECORD_BYTES // record_bytes // factor
        records = min(most, int(rate(most // 5) * ATTEMPT_S))
        rate(records)  # a broker in a JVM compiles itself during its first 300,000 records
        rates, cost = spent(system, lambda: [rate(records) for _ in range(ATTEMPTS)])
        per_gb = cost.per(ATTEMPTS * records * record_bytes / GB)
        return statistics.median(rates), *per_gb, *cost.records_per_flush

    return take


def _one_in_flight(producers: int, partitions: int = 1) -> Take:
    def take(system: System, factor: int) -> Figures:
        topic = create(system, f"single-{producers}-{partitions}", partitions)
        options = {"producers": producers, "partitions": partitions, "seconds": max(8 // factor, 2)}
        found, cost = _second(system, lambda: load("oneinflight", system.bootstrap, topic, **options))
        return found["per_s"], found["p50_ms"], found["p99_ms"], *_per_100k(found, cost)

    return take


def _second(system: System, work: Callable[[], dict[str, float]]) -> tuple[dict[str, float], Spent]:
    """What the second of two passes finds, and what the system spends on it. The first one warms up."""
    work()
    return spent(system, work)


def _per_100k(found: dict[str, float], cost: Spent) -> Figures:
    """Records of the load program's warm-up cost as much as the others."""
    return *cost.per(found["all"] / HUNDRED_THOUSAND), *cost.records_per_flush


def _one_request(system: System, factor: int) -> Figures:
    topic = create(system, "wide", WIDE)
    times = asyncio.run(_produced_to_many(system.bootstrap, topic, REQUESTS // factor + 2))
    return statistics.median(times), sorted(times)[len(times) * 99 // 100]


async def _produced_to_many(bootstrap: str, topic: str, requests: int) -> list[float]:
    """Milliseconds of each Produce request to all partitions, one at a time, after two for warming up."""
    records = build_batch([Record(timestamp=1, key=None, value=b"x" * 1024)])
    parts = [produce.ProduceRequestPartition(index=index, records=records) for index in range(WIDE)]
    topics = [produce.ProduceRequestTopic(name=topic, partition_data=parts)]
    request = produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics)
    body = b"".join(produce.encode_request(request, PRODUCE_VERSION))
    wire = await Wire.open(bootstrap, "bench")

    async def errors() -> set[int]:
        """The error codes of the partitions."""
        answer = await wire.exchange(produce.API_KEY, PRODUCE_VERSION, body)
        response = produce.decode_response(answer, PRODUCE_VERSION)
        return {part.error_code for topic in response.responses for part in topic.partition_responses}

    deadline = time.monotonic() + NOT_YET_S
    while found := await errors() - {ErrorCode.NONE}:  # Apache Kafka creates topics before their leaders
        assert found <= NOT_YET, found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(RETRY_S)
    times = []
    for _ in range(1 + requests):
        begin = time.perf_counter()
        found = await errors()
        times.append((time.perf_counter() - begin) * 1000)
        assert found == {ErrorCode.NONE}, found
    wire.close()
    return times[1:]


def _written(system: System, topic: str, partitions: int) -> int:
    """The number of records in the topic, which depends on the system's speed."""
    consumer = Consumer(_quiet(system) | {"group.id": "bench"})
    try:
        found = (consumer.get_watermark_offsets(TopicPartition(topic, n), 60) for n in range(partitions))
        return sum(high - low for low, high in found)
    finally:
        consumer.close()


def _catch_up(system: System, _factor: int) -> Figures:
    records = _written(system, "perf-12", 12)
    return _read_twice(system, records, lambda: load("catchup", system.bootstrap, "perf-12", records=records))


def _catch_up_cold(system: System, _factor: int) -> Figures:
    records = _written(
        system, "perf-12", 12
    )  # asked before, as librdkafka does not wait for Apache Kafka's leaders
    system.restart()
    found = load("catchup", system.bootstrap, "perf-12", records=records)
    return found["per_s"], found["mb_per_s"]


def _consume_java(system: System, _factor: int) -> Figures:
    records = _written(system, "perf-12", 12)
    return _read_twice(system, records, lambda: consumer_performance(system.bootstrap, "perf-12", records))


def _read_twice(system: System, records: int, read: Callable[[], dict[str, float]]) -> Figures:
    found, cost = _second(system, read)
    return found["per_s"], found["mb_per_s"], *cost.per(records * RECORD_BYTES / GB)


def _end_to_end(system: System, factor: int) -> Figures:
    topic = create(system, "latency", 12)
    seconds = max(10 // factor, 2)
    found, cost = _second(system, lambda: load("endtoend", system.bootstrap, topic, seconds=seconds))
    return found["p50_ms"], found["p99_ms"], *_per_100k(found, cost)


def _memory(system: System, _factor: int) -> Figures:
    held = system.memory()
    return tuple(float(held[role] >> 20) for role in ROLES)


def _restart(system: System, factor: int) -> Figures:
    topic = create(system, "many-segments", 1)
    producer = Producer(_quiet(system) | {"acks": "all", "linger.ms": 0})
    for _ in range(SEGMENTS // factor):
        producer.produce(topic, b"x", partition=0)
        producer.flush(30)  # one record, one segment
    begin = time.monotonic()
    started = system.restart()
    producer = Producer(_quiet(system) | {"acks": "all", "linger.ms": 0})
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(120) == 0
    load("catchup", system.bootstrap, topic, records=1)
    return time.monotonic() - begin, started


_READING = {Line.CATCH_UP_HOT, Line.CATCH_UP_COLD, Line.CONSUME_JAVA}
_PARTS: Sequence[dict[Line, Take]] = (
    {
        Line.ONE_PRODUCER: _one_in_flight(1),
        Line.PRODUCERS_16: _one_in_flight(16),
        Line.PRODUCERS_32: _one_in_flight(32),
        Line.PRODUCERS_64: _one_in_flight(64),
        Line.ONE_REQUEST: _one_request,
        Line.PARTITIONS_64: _one_in_flight(64, 64),
    },
    {
        Line.ONE_PARTITION: _produce(1),
        Line.TWELVE_PARTITIONS: _produce(12),
        Line.TWELVE_SMALL: _produce(12, 100),
        Line.CATCH_UP_HOT: _catch_up,
        Line.CONSUME_JAVA: _consume_java,
        Line.MEMORY: _memory,
        Line.CATCH_UP_COLD: _catch_up_cold,
        Line.END_TO_END: _end_to_end,
    },
    {
        Line.RESTART: _restart,
        Line.HUNDRED_PARTITIONS: _produce(100),
        Line.THOUSAND_PARTITIONS: _produce(1_000),
    },
)
_STEPS = {line: take for part in _PARTS for line, take in part.items()}
PARTS: Sequence[frozenset[Line]] = tuple(frozenset(part) for part in _PARTS)
"""Every system measures one part before any system begins the next one, each time with an empty store. The speed of a
virtual machine changes within minutes, so what is compared must be measured soon after one another."""
