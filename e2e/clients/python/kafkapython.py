"""kafka-python as a client of the matrix, with its default settings (so idempotent)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider
from record import Args, event, parse, run, sasl_settings, show, until_terminated

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class TokenFile(AbstractTokenProvider):
    """Read for each login: another program renews the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def token(self) -> str:
        return self.path.read_text().strip()


def secured(a: Args) -> dict[str, Any]:
    s = a.security
    if not s:
        return {}
    settings: dict[str, Any] = {"client_id": a.name, "security_protocol": s["protocol"]}
    if s["ca"]:
        settings |= {"ssl_cafile": s["ca"]}
    if s["certificate"]:
        settings |= {"ssl_certfile": s["certificate"], "ssl_keyfile": s["key"]}
    return settings | sasl_settings(s, TokenFile)


def produce(a: Args) -> None:
    producer = KafkaProducer(
        bootstrap_servers=a.bootstrap,
        compression_type=None if a.codec == "none" else a.codec,
        **secured(a),
    )
    sent = [
        producer.send(
            a.topic, value=a.value(i), key=a.key(i), headers=a.headers(i), timestamp_ms=a.timestamp(i)
        )
        for i in range(a.count)
    ]
    for future in sent:
        future.get(timeout=60)
    producer.close()


def consume(a: Args) -> None:
    consumer = KafkaConsumer(bootstrap_servers=a.bootstrap, auto_offset_reset="earliest", **secured(a))
    consumer.assign([TopicPartition(a.topic, p) for p in range(a.partitions)])
    left = a.count
    while left:
        for records in consumer.poll(timeout_ms=1000).values():
            for r in records:
                show(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                left -= 1
    consumer.close()


# Long enough that a join begins and ends inside one poll. A leader that joined again for new metadata loses the
# answer of its SyncGroup when a poll's time ends before it: the next poll sees no reason to join, so it does not look
# at the answer, and the member never reads nor sends a heartbeat again (3.0.12, base.py, join_group_async).
POLL_MS = 5_000


class Listener(ConsumerRebalanceListener):
    """Commits before it lets go."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.read: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        event("assigned", [each.partition for each in assigned])

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.commit({each: self.read.pop(each) for each in revoked if each in self.read})
        event("revoked", [each.partition for each in revoked])

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        for each in lost:
            self.read.pop(each, None)
        event("revoked", [each.partition for each in lost], text="lost")

    def commit(self, positions: dict[TopicPartition, int]) -> None:
        if not positions:
            return
        done = dict(positions)
        try:
            self.consumer.commit({each: OffsetAndMetadata(offset, "", -1) for each, offset in done.items()})
        except KafkaError as error:
            event("note", text=f"commit: {error!r}")
            return
        for each, offset in done.items():
            event("committed", [each.partition], offset)
        positions.clear()


def group(a: Args) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=a.bootstrap,
        group_id=a.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=a.session_ms,
        heartbeat_interval_ms=1000,
        partition_assignment_strategy=[ASSIGNORS[a.assignor]],
        **secured(a),
    )
    listener = Listener(consumer)
    stop = until_terminated()
    consumer.subscribe([a.topic], listener=listener)
    while not stop.is_set():
        for each, records in consumer.poll(timeout_ms=POLL_MS).items():
            for record in records:
                event("record", [record.partition], record.offset)
                listener.read[each] = record.offset + 1
        listener.commit(listener.read)
    consumer.close()
    event("left")


run(parse(), produce, consume, group)
