"""Copies one topic to another exactly once with librdkafka, as its documentation shows it; see e2e/clients/README.md.

It goes on after every error. What a session has left open, the next one's init_transactions aborts.
"""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

ANSWER_S = 20.0
WAIT_S = 0.2
TOGETHER = 50
stopping = False


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def stop(_signal: int, _frame: FrameType | None) -> None:
    global stopping
    stopping = True


def session(args: argparse.Namespace) -> None:
    producer = Producer(
        {
            "bootstrap.servers": args.bootstrap,
            "transactional.id": args.id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 5,
            # With re-bootstrap, send_offsets_to_transaction of librdkafka 2.16 may never return after all brokers went.
            "metadata.recovery.strategy": "none",
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap,
            "group.id": args.group,
            "group.protocol": args.protocol,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        producer.init_transactions(ANSWER_S)
        consumer.subscribe([args.source])
        while not stopping:
            copy(args, producer, consumer)
    except KafkaException as failed:
        tell("again", failed)
    finally:
        consumer.close()


def copy(args: argparse.Namespace, producer: Producer, consumer: Consumer) -> None:
    messages = [each for each in consumer.consume(TOGETHER, timeout=WAIT_S) if each.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    ends: dict[int, int] = {}
    for each in messages:
        partition = each.partition() or 0
        producer.produce(args.to, each.value(), each.key(), partition=partition)
        ends[partition] = (each.offset() or 0) + 1
    read = [TopicPartition(args.source, partition, end) for partition, end in ends.items()]
    producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), ANSWER_S)
    producer.commit_transaction(ANSWER_S)
    tell("copied", len(messages))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "to", "group", "protocol", "id"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--from", dest="source", required=True)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    while not stopping:
        session(args)


if __name__ == "__main__":
    main()
