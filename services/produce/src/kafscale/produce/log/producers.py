"""What the owner of a partition knows of its idempotent producers.

The truth is the log: the batches' own headers. This table is that truth for the newest batches of
each producer id, committed ones and those assigned but not yet committed alike, since within an
epoch an assigned batch is never taken back: after trouble the whole table is thrown away. It may be
rebuilt at any time from a snapshot and the headers of the committed segments after it.

Rules (Kafka's): the five newest committed batches can be recognised when they are repeated; a gap is
OUT_OF_ORDER_SEQUENCE_NUMBER; an older producer epoch is INVALID_PRODUCER_EPOCH; a newer one starts at
sequence 0; sequences wrap after 2^31-1. An unknown producer may start anywhere: its state may have
expired, and a fatal error to a client that did nothing wrong is worse than an unchecked first batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kafscale.storage.snapshots import (
    BATCHES_MAX,
    EXPIRY_MS,
    ProducerBatch,
    ProducerEntry,
    ProducerSnapshot,
)
from kafscale.wire.errors import ErrorCode

SEQUENCE_MASK = 0x7FFF_FFFF
_HALF = 1 << 30
_EVERYTHING = 1 << 63


def sequence_after(sequence: int, count: int) -> int:
    return (sequence + count) & SEQUENCE_MASK


class KnownBatch(NamedTuple):
    """A batch of a producer that has its offsets."""

    epoch: int
    first_seq: int
    last_seq: int
    base: int
    ts: int


class StoredHeader(Protocol):
    """The part of a committed batch's header that recovery reads; `wire.records.BatchHeader` has it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class _Producer:
    """`batches` holds, newest last, all that are in flight and at least the five newest committed.

    `first_seq` is the oldest sequence of the newest epoch that this table is sure to have seen.
    """

    __slots__ = ("batches", "first_seq", "last_ms")

    def __init__(self, batches: list[KnownBatch], last_ms: int) -> None:
        self.batches = batches
        self.first_seq = batches[0].first_seq
        self.last_ms = last_ms


class ProducerTable:
    """One partition's producers, up to the last assigned offset."""

    __slots__ = ("_covered", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._covered = 0

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    @classmethod
    def restore(cls, snapshot: ProducerSnapshot | None) -> ProducerTable:
        """The state at `snapshot.offset`; `replay` what was committed from there on."""
        table = cls()
        if snapshot is None:
            return table
        table._covered = snapshot.offset
        for entry in snapshot.producers:
            batches = [
                KnownBatch(entry.epoch, batch.first_seq, batch.last_seq, batch.base, batch.ts)
                for batch in entry.batches
            ]
            if batches:
                table._producers[entry.producer_id] = _Producer(batches, entry.last_ms)
        return table

    def replay(self, headers: Iterable[StoredHeader], wall_ms: int) -> None:
        """Take in committed batches in offset order; those the snapshot covers are passed over."""
        for header in headers:
            if header.producer_id < 0 or header.base_offset < self._covered:
                continue
            self.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                sequence_after(header.base_sequence, header.last_offset_delta),
                header.base_offset,
                header.max_timestamp,
                wall_ms=wall_ms,
                committed=_EVERYTHING,
            )

    def judge(self, producer_id: int, epoch: int, first_seq: int, last_seq: int) -> KnownBatch | ErrorCode:
        """NONE: append it. A KnownBatch: it is a repeat of that one. Else why it is refused."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return ErrorCode.NONE
        newest = producer.batches[-1]
        if epoch == newest.epoch:
            if first_seq == (newest.last_seq + 1) & SEQUENCE_MASK:
                return ErrorCode.NONE
            return _repeat(producer, epoch, first_seq, last_seq)
        if epoch < newest.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE if first_seq == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def record(
        self,
        producer_id: int,
        epoch: int,
        first_seq: int,
        last_seq: int,
        base: int,
        ts: int,
        *,
        wall_ms: int,
        committed: int,
    ) -> None:
        """A batch was given `base`. `committed` is the offset below which all is committed."""
        batch = KnownBatch(epoch, first_seq, last_seq, base, ts)
        producer = self._producers.get(producer_id)
        if producer is None:
            self._producers[producer_id] = _Producer([batch], wall_ms)
            return
        producer.last_ms = wall_ms
        batches = producer.batches
        if epoch != batches[-1].epoch:
            producer.first_seq = first_seq
        batches.append(batch)
        while len(batches) > BATCHES_MAX and batches[BATCHES_MAX].base < committed:
            del batches[0]

    def snapshot(self, below: int) -> ProducerSnapshot:
        """The committed part: batches under `below`, which must be a committed log end."""
        entries: list[ProducerEntry] = []
        for producer_id, producer in self._producers.items():
            stored = [batch for batch in producer.batches if batch.base < below]
            if not stored:
                continue
            epoch = stored[-1].epoch
            entries.append(
                ProducerEntry(
                    producer_id=producer_id,
                    epoch=epoch,
                    last_ms=producer.last_ms,
                    batches=tuple(
                        ProducerBatch(first_seq=b.first_seq, last_seq=b.last_seq, base=b.base, ts=b.ts)
                        for b in stored[-BATCHES_MAX:]
                        if b.epoch == epoch
                    ),
                )
            )
        return ProducerSnapshot(offset=below, producers=tuple(entries))

    def expired(self, snapshot: ProducerSnapshot, wall_ms: int) -> ProducerSnapshot:
        """`snapshot` without the producers that were silent for a day.

        Only a snapshot forgets, and memory follows once it is durable (`forget`), so that an owner
        and its successor know the same producers.
        """
        kept = tuple(entry for entry in snapshot.producers if entry.last_ms + EXPIRY_MS > wall_ms)
        return ProducerSnapshot(offset=snapshot.offset, producers=kept)

    def forget(self, kept: ProducerSnapshot) -> None:
        """The snapshot `kept` is durable: drop what it left out, unless it was heard of since."""
        known = {entry.producer_id for entry in kept.producers}
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer_id not in known and producer.batches[-1].base < kept.offset
        ]
        for producer_id in gone:
            del self._producers[producer_id]


def _repeat(producer: _Producer, epoch: int, first_seq: int, last_seq: int) -> KnownBatch | ErrorCode:
    """A sequence that is not the next one: a repeat (of one batch or several neighbours), older, or a gap.

    DUPLICATE_SEQUENCE_NUMBER makes a client drop the batch as written, so it is said only of sequences
    that this table saw being written; what is older than its knowledge may never have arrived.
    """
    last: KnownBatch | None = None
    oldest = producer.batches[-1]
    for batch in reversed(producer.batches):
        if batch.epoch != epoch:
            break
        if batch.last_seq == last_seq:
            last = batch
        if batch.first_seq == first_seq and last is not None:
            return KnownBatch(epoch, first_seq, last_seq, batch.base, last.ts)
        oldest = batch
    if _at_or_before(producer.first_seq, first_seq) and _before(last_seq, oldest.first_seq):
        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _at_or_before(a: int, b: int) -> bool:
    """In the circle of sequences, by the shorter way."""
    return (b - a) & SEQUENCE_MASK < _HALF


def _before(a: int, b: int) -> bool:
    return a != b and _at_or_before(a, b)
