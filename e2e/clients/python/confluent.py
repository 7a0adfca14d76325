"""confluent-kafka (librdkafka) as a client of the matrix."""

from __future__ import annotations

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from record import Args, parse, show


def produce(a: Args) -> None:
    producer = Producer(
        {
            "bootstrap.servers": a.bootstrap,
            "compression.type": a.codec,
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
    failed: list[str] = []
    for i in range(a.count):
        producer.produce(
            a.topic,
            a.value(i),
            a.key(i),
            headers=a.headers(i),
            timestamp=a.timestamp(i),
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        producer.poll(0)
    unsent = producer.flush(60)
    if unsent or failed:
        sys.exit(f"{unsent} not acknowledged; {failed[:1]}")


def consume(a: Args) -> None:
    consumer = Consumer({"bootstrap.servers": a.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(a.topic, p, OFFSET_BEGINNING) for p in range(a.partitions)])
    left = a.count
    while left:
        for message in consumer.consume(1000, timeout=1):
            if message.error():
                sys.exit(str(message.error()))
            show(
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or [],
            )
            left -= 1
    consumer.close()


args = parse()
produce(args) if args.mode == "produce" else consume(args)
