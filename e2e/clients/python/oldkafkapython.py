"""kafka-python 1.4 as a client of the matrix, configured for a broker of an old release: message sets, no headers."""

from __future__ import annotations

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from record import NO_TIMESTAMP, Args, no_groups, parse, run, show


def release(a: Args) -> tuple[int, ...]:
    return tuple(int(part) for part in a.release.split("."))


def produce(a: Args) -> None:
    producer = KafkaProducer(
        bootstrap_servers=a.bootstrap,
        api_version=release(a),
        compression_type=None if a.codec == "none" else a.codec,
        acks="all",
    )
    sent = [
        producer.send(a.topic, value=a.value(i), key=a.key(i), timestamp_ms=a.timestamp(i))
        for i in range(a.count)
    ]
    for future in sent:
        future.get(timeout=60)
    producer.close()


def consume(a: Args) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=a.bootstrap, api_version=release(a), auto_offset_reset="earliest", check_crcs=True
    )
    consumer.assign([TopicPartition(a.topic, p) for p in range(a.partitions)])
    left = a.count
    while left:
        for records in consumer.poll(timeout_ms=1000).values():
            for r in records:
                timestamp = NO_TIMESTAMP if r.timestamp is None else r.timestamp
                show(r.partition, r.offset, timestamp, r.key, r.value, r.headers)
                left -= 1
    consumer.close()


run(parse(), produce, consume, no_groups)
