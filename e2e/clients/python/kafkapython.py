"""kafka-python as a client of the matrix, with its default settings (so idempotent)."""

from __future__ import annotations

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from record import Args, parse, show


def produce(a: Args) -> None:
    producer = KafkaProducer(
        bootstrap_servers=a.bootstrap, compression_type=None if a.codec == "none" else a.codec
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
    consumer = KafkaConsumer(bootstrap_servers=a.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(a.topic, p) for p in range(a.partitions)])
    left = a.count
    while left:
        for records in consumer.poll(timeout_ms=1000).values():
            for r in records:
                show(r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                left -= 1
    consumer.close()


args = parse()
produce(args) if args.mode == "produce" else consume(args)
