"""Copies one topic to another exactly once with aiokafka; see e2e/clients/README.md."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

TOGETHER = 50


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def session(args: argparse.Namespace, stop: asyncio.Event) -> None:
    """Until an error. What it has left open, the next session's producer aborts when it begins."""
    consumer = AIOKafkaConsumer(
        args.source,
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=args.bootstrap, transactional_id=args.id, transaction_timeout_ms=10_000
    )
    try:
        await producer.start()
        await consumer.start()
        while not stop.is_set():
            await copy(args, producer, consumer)
    except KafkaError as failed:
        tell("again", repr(failed))
    finally:
        await consumer.stop()
        await producer.stop()


async def copy(args: argparse.Namespace, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
    found = await consumer.getmany(timeout_ms=200, max_records=TOGETHER)
    if not found:
        return
    async with producer.transaction():
        sent = [
            await producer.send(args.to, record.value, key=record.key, partition=record.partition)
            for records in found.values()
            for record in records
        ]
        await asyncio.gather(*sent)
        ends = {where: records[-1].offset + 1 for where, records in found.items()}
        await producer.send_offsets_to_transaction(ends, args.group)
    tell("copied", len(sent))


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "to", "group", "protocol", "id"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--from", dest="source", required=True)
    args = parser.parse_args()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        await session(args, stop)


if __name__ == "__main__":
    asyncio.run(main())
