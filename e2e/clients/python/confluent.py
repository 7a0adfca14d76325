"""confluent-kafka (librdkafka) as a client of the matrix."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from record import NO_TIMESTAMP, Args, event, parse, run, show, until_terminated


def secured(a: Args) -> dict[str, object]:
    """The file that --security names has the library's own settings."""
    return {"client.id": a.name, **a.security} if a.security else {}


def believed(a: Args) -> dict[str, object]:
    """The broker is what --release says; else it is asked."""
    if not a.release:
        return {"bootstrap.servers": a.bootstrap, **secured(a)}
    return {
        "bootstrap.servers": a.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": a.release,
    }


def produce(a: Args) -> None:
    producer = Producer(
        {
            **believed(a),
            "compression.type": a.codec,
            "enable.idempotence": not a.release,
            "linger.ms": 5,
        }
    )
    failed: list[str] = []
    for i in range(a.count):
        producer.produce(
            a.topic,
            a.value(i),
            a.key(i),
            headers=[] if a.release else a.headers(i),
            timestamp=a.timestamp(i),
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        producer.poll(0)
    unsent = producer.flush(60)
    if unsent or failed:
        sys.exit(f"{unsent} not acknowledged; {failed[:1]}")


def consume(a: Args) -> None:
    consumer = Consumer(
        {
            **believed(a),
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": a.isolation,
        }
    )
    consumer.assign([TopicPartition(a.topic, p, OFFSET_BEGINNING) for p in range(a.partitions)])
    left = a.count
    while left:
        for message in consumer.consume(1000, timeout=1):
            if message.error():
                sys.exit(str(message.error()))
            kind, timestamp = message.timestamp()
            show(
                message.partition(),
                message.offset(),
                NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                message.key(),
                message.value(),
                message.headers() or [],
            )
            left -= 1
    consumer.close()


class Member:
    """Commits before it lets go. The new protocol and cooperative assignors move partitions gradually."""

    def __init__(self, a: Args) -> None:
        classic = {
            "partition.assignment.strategy": a.assignor,
            "session.timeout.ms": a.session_ms,
            "heartbeat.interval.ms": 1000,
        }
        self.topic = a.topic
        self.gradual = a.protocol == "consumer" or a.assignor == "cooperative-sticky"
        self.read: dict[int, int] = {}  # partition -> position, not committed yet
        self.consumer = Consumer(
            {
                "bootstrap.servers": a.bootstrap,
                **secured(a),
                "group.id": a.group,
                "group.protocol": a.protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **({} if a.protocol == "consumer" else classic),
                **({"group.instance.id": a.instance} if a.instance else {}),
            }
        )

    def assigned(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        event("assigned", [part.partition for part in parts])
        consumer.incremental_assign(parts) if self.gradual else consumer.assign(parts)

    def revoked(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        gone = {part.partition for part in parts}
        self.commit({part: self.read.pop(part) for part in gone & self.read.keys()})
        event("revoked", gone)
        consumer.incremental_unassign(parts) if self.gradual else consumer.unassign()

    def lost(self, _: Consumer, parts: list[TopicPartition]) -> None:
        for part in parts:
            self.read.pop(part.partition, None)
        event("revoked", [part.partition for part in parts], text="lost")

    def poll(self) -> None:
        for message in self.consumer.consume(100, timeout=0.2):
            if error := message.error():
                note([], error)
                continue
            event("record", [message.partition()], message.offset())
            self.read[message.partition()] = message.offset() + 1
        self.commit(self.read)

    def commit(self, positions: dict[int, int]) -> None:
        """A commit that a rebalance overtakes is the next owner's to make."""
        if not positions:
            return
        offsets = [TopicPartition(self.topic, part, offset) for part, offset in positions.items()]
        try:
            done = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            note(positions, failure.args[0])
            return
        for each in done or []:
            if each.error:
                note([each.partition], each.error)
            else:
                event("committed", [each.partition], each.offset)
                positions.pop(each.partition)


def note(partitions: Iterable[int], error: KafkaError) -> None:
    """After a fatal error the library does nothing more. Its log says which it was."""
    if error.code() == KafkaError._FATAL:
        event("fatal", partitions, text=str(error))
        sys.exit(1)
    event("note", partitions, text=str(error))


def group(a: Args) -> None:
    member, stop = Member(a), until_terminated()
    consumer = member.consumer
    consumer.subscribe([a.topic], on_assign=member.assigned, on_revoke=member.revoked, on_lost=member.lost)
    while not stop.is_set():
        member.poll()
    consumer.close()
    event("left")


run(parse(), produce, consume, group)
