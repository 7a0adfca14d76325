"""aiokafka as a client of the matrix."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from record import Args, event, parse, run, sasl_settings, show

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class TokenFile(AbstractTokenProvider):
    """Read for each login: another program renews the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def token(self) -> str:
        return self.path.read_text().strip()


def secured(a: Args) -> dict[str, Any]:
    s = a.security
    if not s:
        return {}
    settings: dict[str, Any] = {"client_id": a.name, "security_protocol": s["protocol"]}
    if s["ca"]:
        own = {"certfile": s["certificate"], "keyfile": s["key"]} if s["certificate"] else {}
        settings |= {"ssl_context": create_ssl_context(cafile=s["ca"], **own)}
    return settings | sasl_settings(s, TokenFile)


async def produce(a: Args) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=a.bootstrap,
        compression_type=None if a.codec == "none" else a.codec,
        enable_idempotence=True,
        linger_ms=5,
        **secured(a),
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                a.topic, value=a.value(i), key=a.key(i), headers=a.headers(i), timestamp_ms=a.timestamp(i)
            )
            for i in range(a.count)
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def consume(a: Args) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=a.bootstrap, auto_offset_reset="earliest", **secured(a))
    await consumer.start()
    try:
        consumer.assign([TopicPartition(a.topic, p) for p in range(a.partitions)])
        left = a.count
        while left:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for r in records:
                    show(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                    left -= 1
    finally:
        await consumer.stop()


class Listener(ConsumerRebalanceListener):
    """Commits before it lets go."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.read: dict[TopicPartition, int] = {}

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        event("assigned", [each.partition for each in assigned])

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self.commit()
        self.read.clear()
        event("revoked", [each.partition for each in revoked])

    async def commit(self) -> None:
        positions = dict(self.read)
        if not positions:
            return
        try:
            await self.consumer.commit(positions)
        except KafkaError as error:
            event("note", text=f"commit: {error!r}")
            return
        for each, offset in positions.items():
            event("committed", [each.partition], offset)
            if self.read.get(each) == offset:
                self.read.pop(each)


async def group(a: Args) -> None:
    consumer = AIOKafkaConsumer(
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
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer.subscribe([a.topic], listener=listener)
    await consumer.start()
    while not stop.is_set():
        for each, records in (await consumer.getmany(timeout_ms=200)).items():
            for record in records:
                event("record", [record.partition], record.offset)
                listener.read[each] = record.offset + 1
        await listener.commit()
    await consumer.stop()
    event("left")


run(
    parse(),
    lambda a: asyncio.run(produce(a)),
    lambda a: asyncio.run(consume(a)),
    lambda a: asyncio.run(group(a)),
)
