"""Producer snapshots: what idempotence needs to know of the log below an offset.

A snapshot object holds, for each producer id, the newest committed batches below `offset`. With the
batch headers of the committed segments from there on it gives back the owner's whole state, so
nothing of it lives in etcd. Uniquely named, hence immutable.

A snapshot's bytes are a head and one part for each producer, in any order: a part that did not change since the last
snapshot is written again as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag

from kafscale.log.heads import OpenTransaction, open_from_pb, open_to_pb
from kafscale.storage.schema import SCHEMA, parse_value
from kafscale.store.v1 import store_pb2 as pb

BATCHES_MAX = 5
"""Kafka's number: a producer may have five requests in flight, each of which it may repeat."""
EXPIRY_MS = 24 * 3_600_000
"""Nobody need remember a producer that was silent for so long: Kafka's default of `producer.id.expiration.ms`."""


class SnapshotFeature(IntFlag):
    """What a snapshot may use that a version without it must refuse. Bits of its schema (`storage.schema`)."""

    TRANSACTIONS = 1  # its log has ever had a transaction


SNAPSHOT_FEATURES = SnapshotFeature.TRANSACTIONS
"""Those that this version reads."""


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
    batches: tuple[ProducerBatch, ...]  # newest last; none if a marker raised the epoch since
    coordinator_epoch: int = -1  # of its newest marker; -1: there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshot:
    offset: int  # covers the committed batches below it
    producers: tuple[ProducerEntry, ...] = ()
    open: tuple[OpenTransaction, ...] = ()  # of the head, when the log ended at `offset`
    transactional: bool = False  # the log has ever had a transaction


def encode_producer(entry: ProducerEntry) -> bytes:
    """The part of one producer."""
    message = pb.ProducerSnapshot()
    added = message.producers.add(
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        last_ms=entry.last_ms,
        coordinator_epoch=entry.coordinator_epoch + 1,
    )
    for batch in entry.batches:
        added.batches.add(first_seq=batch.first_seq, last_seq=batch.last_seq, base=batch.base, ts=batch.ts)
    return message.SerializeToString()


def encode_snapshot(
    offset: int,
    parts: Iterable[bytes],
    open_transactions: Iterable[OpenTransaction] = (),
    *,
    transactional: bool = False,
) -> bytes:
    """A snapshot that covers the committed batches below `offset`; `parts` as `encode_producer` makes them.

    Protocol Buffers reads messages that were joined as one whose repeated fields are joined.
    """
    features = SNAPSHOT_FEATURES if transactional else 0
    message = pb.ProducerSnapshot(schema=SCHEMA + features, offset=offset)
    message.open.extend(map(open_to_pb, open_transactions))
    assert transactional or not message.open, "a version without transactions would read it"
    return message.SerializeToString() + b"".join(parts)


def decode_snapshot(data: bytes) -> ProducerSnapshot:
    message = pb.ProducerSnapshot()
    parse_value(message, data, "producer snapshot", SNAPSHOT_FEATURES)
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
                coordinator_epoch=entry.coordinator_epoch - 1,
            )
            for entry in message.producers
        ),
        open=tuple(map(open_from_pb, message.open)),
        transactional=bool(message.schema - SCHEMA & SnapshotFeature.TRANSACTIONS),
    )
