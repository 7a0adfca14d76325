"""aiokafka as a client of the matrix."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from record import Args, parse, show


async def produce(a: Args) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=a.bootstrap,
        compression_type=None if a.codec == "none" else a.codec,
        enable_idempotence=True,
        linger_ms=5,
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
    consumer = AIOKafkaConsumer(bootstrap_servers=a.bootstrap, auto_offset_reset="earliest")
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


args = parse()
asyncio.run(produce(args) if args.mode == "produce" else consume(args))
