"""Producer snapshots: what idempotence needs to know of the log below an offset.

A snapshot object holds, for each producer id, the newest committed batches below `offset`. With the
batch headers of the committed segments from there on it gives back the owner's whole state, so
nothing of it lives in etcd. Uniquely named, hence immutable.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.storage.heads import parse_value
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1 import store_pb2 as pb

BATCHES_MAX = 5
"""Kafka's number: a producer may have five requests in flight, each of which it may repeat."""
EXPIRY_MS = 24 * 3_600_000
"""Nobody need remember a producer that was silent for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBatch:
    first_seq: int
    last_seq: int
    base: int  # offset of its first record
    ts: int  # its max timestamp as stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    producer_id: int
    epoch: int
    last_ms: int  # wall clock of its last append
    batches: tuple[ProducerBatch, ...]  # newest last


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshot:
    offset: int  # covers the committed batches below it
    producers: tuple[ProducerEntry, ...] = ()


def encode_snapshot(snapshot: ProducerSnapshot) -> bytes:
    message = pb.ProducerSnapshot(schema=SCHEMA, offset=snapshot.offset)
    for entry in snapshot.producers:
        added = message.producers.add(producer_id=entry.producer_id, epoch=entry.epoch, last_ms=entry.last_ms)
        for batch in entry.batches:
            added.batches.add(
                first_seq=batch.first_seq, last_seq=batch.last_seq, base=batch.base, ts=batch.ts
            )
    return message.SerializeToString()


def decode_snapshot(data: bytes) -> ProducerSnapshot:
    message = pb.ProducerSnapshot()
    parse_value(message, data, "producer snapshot")
    return ProducerSnapshot(
        offset=message.offset,
        producers=tuple(
            ProducerEntry(
                producer_id=entry.producer_id,
                epoch=entry.epoch,
                last_ms=entry.last_ms,
                batches=tuple(
                    ProducerBatch(first_seq=b.first_seq, last_seq=b.last_seq, base=b.base, ts=b.ts)
                    for b in entry.batches
                ),
            )
            for entry in message.producers
        ),
    )
