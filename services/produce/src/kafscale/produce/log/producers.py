"""What the owner of a partition knows of its idempotent producers.

The truth is the log: the batches' own headers. This table is that truth for the newest batches of
each producer id, committed ones and those assigned but not yet committed alike, since within an
epoch an assigned batch is never taken back: after trouble the whole table is thrown away. It may be
rebuilt at any time from a snapshot and the headers of the committed segments after it.

Rules (Kafka's): the five newest committed batches can be recognised when they are repeated; a gap is
OUT_OF_ORDER_SEQUENCE_NUMBER; an older producer epoch is INVALID_PRODUCER_EPOCH; a newer one starts at
sequence 0; sequences wrap after 2^31-1. An unknown producer may start anywhere: its state may have
expired, and a fatal error to a client that did nothing wrong is worse than an unchecked first batch.

A client makes as many producer ids as it likes, so the table is bounded, by itself and together with the others of
the process (`ProducerBudget`). The producers are in the order of their last batches. The producer that was silent
longest is forgotten first, and is unknown from then on. A batch that is on its way to its commit is never forgotten:
its repeat would be appended a second time. A producer with an open transaction is never forgotten either. If only such
producers are left, a batch that needs room is refused. So is a batch of a producer that has IN_FLIGHT_MAX batches on
their way to their commit: it would take the room of all others, and each repeat is looked for among them. A producer
also has its five newest committed batches and, while a snapshot is being stored, the batches that were committed
meanwhile.

A marker may raise the epoch of a producer (KIP-890). Then batches of older epochs are refused, none can be repeated,
and the next one has sequence 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence, ValuesView
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

from kafscale.log.heads import OpenTransaction
from kafscale.log.snapshots import (
    BATCHES_MAX,
    EXPIRY_MS,
    ProducerBatch,
    ProducerEntry,
    ProducerSnapshot,
    encode_producer,
    encode_snapshot,
)
from kafscale.produce.log.producer_budget import ProducerBudget
from kafscale.wire.errors import ErrorCode
from kafscale.wire.markers import Marker

SEQUENCE_MASK = 0x7FFF_FFFF
_HALF = 1 << 30


def sequence_after(sequence: int, count: int) -> int:
    return (sequence + count) & SEQUENCE_MASK


class KnownBatch(NamedTuple):
    """A batch of a producer that has its offsets."""

    epoch: int
    first_seq: int
    last_seq: int
    base: int
    ts: int


class KnownMarker(NamedTuple):
    """A marker of a producer's transaction that has its offset. It has no sequence."""

    epoch: int
    coordinator_epoch: int
    base: int


class Repeat(NamedTuple):
    """What a producer offers again: one batch, or several neighbours. It is committed when its last batch is."""

    base: int  # of its first record
    last_base: int  # of its last batch
    ts: int


def find_repeat(
    batches: Sequence[KnownBatch], known_from: int, epoch: int, first_seq: int, last_seq: int
) -> Repeat | ErrorCode:
    """A sequence that is not the next one: a repeat (of one batch or several neighbours), older, or a gap.

    `batches` are a producer's, newest last; from the sequence `known_from` on none of its newest epoch was missed.
    DUPLICATE_SEQUENCE_NUMBER makes a client drop the batch as written, so it is said only of sequences
    that this table saw being written; what is older than its knowledge may never have arrived.
    """
    last: KnownBatch | None = None
    oldest = batches[-1]
    for batch in reversed(batches):
        if batch.epoch != epoch:
            break
        if batch.last_seq == last_seq:
            last = batch
        if batch.first_seq == first_seq and last is not None:
            return Repeat(batch.base, last.base, last.ts)
        oldest = batch
    if _at_or_before(known_from, first_seq) and _before(last_seq, oldest.first_seq):
        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _at_or_before(a: int, b: int) -> bool:
    """In the circle of sequences, by the shorter way."""
    return (b - a) & SEQUENCE_MASK < _HALF


def _before(a: int, b: int) -> bool:
    return a != b and _at_or_before(a, b)


_EVERYTHING = 1 << 63
PRODUCER_BYTES = 400
"""Memory of a producer without its batches, with its part of a snapshot; measured."""
BATCH_BYTES = 260
MARKER_BYTES = 180
IN_FLIGHT_MAX = 1_000
"""Batches of one producer in one partition without a commit. Clients with idempotence have five requests in flight."""
STEP_PRODUCERS = 32
"""Of one step of a snapshot: less than a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBounds:
    """How many producer ids a partition remembers, and for how long after their last batches."""

    ids_max: int = 10_000
    expiration_ms: int = EXPIRY_MS


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
    @property
    def is_control(self) -> bool: ...


class _Producer:
    """`batches` holds, newest last, all that are in flight and at least the five newest committed. `markers` holds all
    that are in flight and the newest committed. A marker may raise the epoch, and then no batch is of the newest epoch.

    `first_seq` is the oldest sequence of the newest epoch that this table is sure to have seen.
    """

    __slots__ = ("batches", "first_seq", "last_ms", "markers")

    def __init__(self, batches: list[KnownBatch], markers: list[KnownMarker], last_ms: int) -> None:
        self.batches = batches
        self.markers = markers
        self.first_seq = batches[0].first_seq if batches else 0
        self.last_ms = last_ms

    @property
    def last_base(self) -> int:
        if not self.markers:
            return self.batches[-1].base
        return max(self.markers[-1].base, self.batches[-1].base if self.batches else -1)

    @property
    def epoch(self) -> int:
        if not self.markers:
            return self.batches[-1].epoch
        return max(self.markers[-1].epoch, self.batches[-1].epoch if self.batches else -1)

    @property
    def bytes(self) -> int:
        return PRODUCER_BYTES + BATCH_BYTES * len(self.batches) + MARKER_BYTES * len(self.markers)


def _by_age(snapshot: ProducerSnapshot) -> list[ProducerEntry]:
    """Those that were silent longest come first. Without batches only the time of the last one is known."""
    entries = [entry for entry in snapshot.producers if entry.batches or entry.coordinator_epoch >= 0]
    if all(entry.batches for entry in entries):
        return sorted(entries, key=lambda entry: entry.batches[-1].base)
    return sorted(entries, key=lambda entry: entry.last_ms)


class ProducerTable:
    """One partition's producers, up to the last assigned offset."""

    __slots__ = (
        "_bounds",
        "_budget",
        "_changed",
        "_committed",
        "_covered",
        "_held",
        "_kept_from",
        "_parts",
        "_producers",
        "bytes",
    )

    def __init__(self, bounds: ProducerBounds | None = None) -> None:
        self._bounds = bounds or ProducerBounds()
        self._budget: ProducerBudget | None = None
        self._producers: OrderedDict[int, _Producer] = OrderedDict()  # in the order of their last batches
        self._covered = 0
        self._committed = 0  # all below is committed
        self._held: Container[int] = ()
        self._kept_from = _EVERYTHING  # a snapshot under way still reads what was newest below this offset
        self._parts: dict[int, bytes] = {}  # of the next snapshot
        self._changed: dict[int, None] = {}  # since their parts were made
        self.bytes = 0  # in memory

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    @classmethod
    def restore(
        cls, snapshot: ProducerSnapshot | None, bounds: ProducerBounds | None = None
    ) -> ProducerTable:
        """The state at `snapshot.offset`; `replay` what was committed from there on."""
        table = cls(bounds)
        if snapshot is None:
            return table
        table._covered = table._committed = snapshot.offset
        begun = {each.producer_id for each in snapshot.open}
        entries = _by_age(snapshot)
        forgotten = max(0, len(entries) - table._bounds.ids_max)
        for number, entry in enumerate(entries):
            if number < forgotten and entry.producer_id not in begun:
                continue
            batches = [
                KnownBatch(entry.epoch, batch.first_seq, batch.last_seq, batch.base, batch.ts)
                for batch in entry.batches
            ]
            markers = []
            if entry.coordinator_epoch >= 0:
                base = (
                    batches[-1].base if batches else snapshot.offset - 1
                )  # at the latest; nothing depends on it
                markers = [KnownMarker(entry.epoch, entry.coordinator_epoch, base)]
            producer = _Producer(batches, markers, entry.last_ms)
            table._producers[entry.producer_id] = producer
            table._changed[entry.producer_id] = None
            table.bytes += producer.bytes
        return table

    # --- bounds ----------------------------------------------------------------------------

    def join(self, budget: ProducerBudget) -> None:
        """From now on its bytes count."""
        self._budget = budget
        budget.join(self)

    def leave(self) -> None:
        """Nobody asks this table any more."""
        if self._budget is not None:
            self._budget.leave(self)
            self._budget = None

    def hold(self, producers: Container[int]) -> None:
        """These are not forgotten: they have open transactions."""
        self._held = producers

    def committed(self, below: int) -> None:
        """All batches below this offset are committed."""
        self._committed = max(self._committed, below)

    def make_room(self, producer_id: int) -> bool:
        """Room for one more batch of this producer. False: nothing can be forgotten, all of it is on its way."""
        budget = self._budget
        if producer_id not in self._producers:
            if len(self._producers) >= self._bounds.ids_max:
                if not self.evict(1):
                    return False
                if budget is not None:
                    budget.evicted += 1
            return budget is None or budget.make_room(self)
        if budget is None:
            return True
        oldest = self._oldest == producer_id
        if oldest:
            self._producers.move_to_end(producer_id)  # it is not the one to be forgotten
        room = budget.make_room(self)
        if oldest and not room:
            self._producers.move_to_end(producer_id, last=False)
        return room

    def takes(self, producer_id: int, more: int) -> bool:
        """Whether a producer may have so many more batches on their way to their commit."""
        producer = self._producers.get(producer_id)
        if producer is None or len(producer.batches) + more <= IN_FLIGHT_MAX:
            return more <= IN_FLIGHT_MAX
        batches = producer.batches
        in_flight = len(batches) - bisect_left(batches, self._committed, key=attrgetter("base"))
        return in_flight + more <= IN_FLIGHT_MAX

    @property
    def evictable(self) -> bool:
        """Whether one may be forgotten."""
        return self._oldest is not None

    @property
    def _oldest(self) -> int | None:
        """The one to be forgotten first: silent longest, of those without an open transaction. None: none may be."""
        for producer_id, producer in self._producers.items():
            if producer.last_base >= self._committed:
                return None
            if producer_id not in self._held:
                return producer_id
        return None

    def evict(self, count: int) -> int:
        """Forgets up to so many of those that were silent longest; how many they were."""
        for done in range(count):
            oldest = self._oldest
            if oldest is None:
                return done
            self._drop(oldest)
        return count

    def _drop(self, producer_id: int) -> None:
        producer = self._producers.pop(producer_id)
        self._parts.pop(producer_id, None)
        self._changed.pop(producer_id, None)
        self._grow(-producer.bytes)

    def _grow(self, size: int) -> None:
        self.bytes += size
        if self._budget is not None:
            self._budget.resized(self, self.bytes - size)

    # --- batches ---------------------------------------------------------------------------

    def replay(self, batches: Iterable[tuple[StoredHeader, Marker | None]], wall_ms: int) -> None:
        """Take in committed batches in offset order, with what markers say; those that the snapshot covers are passed
        over."""
        for header, marker in batches:
            if header.producer_id < 0 or header.base_offset < self._covered:
                continue
            if marker is None and header.is_control:
                continue
            self.make_room(header.producer_id)
            if marker is not None:
                self.record_marker(
                    header.producer_id,
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    header.base_offset,
                    wall_ms=wall_ms,
                    committed=header.base_offset + 1,
                )
                continue
            self.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                sequence_after(header.base_sequence, header.last_offset_delta),
                header.base_offset,
                header.max_timestamp,
                wall_ms=wall_ms,
                committed=header.base_offset + header.last_offset_delta + 1,
            )

    def judge(self, producer_id: int, epoch: int, first_seq: int, last_seq: int) -> Repeat | ErrorCode:
        """NONE: append it. A Repeat: it has its offsets already. Else why it is refused."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return ErrorCode.NONE
        if epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if producer.batches and producer.batches[-1].epoch == epoch:
            if first_seq == (producer.batches[-1].last_seq + 1) & SEQUENCE_MASK:
                return ErrorCode.NONE
            return find_repeat(producer.batches, producer.first_seq, epoch, first_seq, last_seq)
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
        self.committed(committed)
        self._changed[producer_id] = None
        producer = self._producers.get(producer_id)
        if producer is None:
            self._producers[producer_id] = producer = _Producer([batch], [], wall_ms)
            self._grow(producer.bytes)
            return
        self._heard_of(producer_id, producer, wall_ms)
        batches = producer.batches
        before = len(batches)
        if not batches or epoch != batches[-1].epoch:
            producer.first_seq = first_seq
        batches.append(batch)
        gone = 0
        while len(batches) - gone > BATCHES_MAX and batches[gone + BATCHES_MAX].base < self._needed_from:
            gone += 1
        del batches[:gone]
        self._grow(BATCH_BYTES * (len(batches) - before))

    def record_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        base: int,
        *,
        wall_ms: int,
        committed: int,
    ) -> None:
        """A marker was given `base`. Its epoch may be higher than that of the transaction's batches: older ones are
        refused from then on, and the producer begins at sequence 0."""
        marker = KnownMarker(epoch, coordinator_epoch, base)
        self.committed(committed)
        self._changed[producer_id] = None
        producer = self._producers.get(producer_id)
        if producer is None:
            self._producers[producer_id] = producer = _Producer([], [marker], wall_ms)
            self._grow(producer.bytes)
            return
        self._heard_of(producer_id, producer, wall_ms)
        markers = producer.markers
        before = len(markers)
        markers.append(marker)
        while len(markers) > 1 and markers[1].base < self._needed_from:
            del markers[0]
        self._grow(MARKER_BYTES * (len(markers) - before))

    def _heard_of(self, producer_id: int, producer: _Producer, wall_ms: int) -> None:
        self._producers.move_to_end(producer_id)
        producer.last_ms = wall_ms

    @property
    def _needed_from(self) -> int:
        """What is newest below this offset is still needed, with all that follows."""
        return min(self._committed, self._kept_from)

    # --- snapshots -------------------------------------------------------------------------

    def entry(self, producer_id: int, below: int) -> ProducerEntry | None:
        """What is committed of a producer: its newest batches under `below`, which must be a committed log end."""
        producer = self._producers.get(producer_id)
        stored = [batch for batch in producer.batches if batch.base < below] if producer else []
        markers = [marker for marker in producer.markers if marker.base < below] if producer else []
        if producer is None or not (stored or markers):
            return None
        epoch = max(found[-1].epoch for found in (stored, markers) if found)
        return ProducerEntry(
            producer_id=producer_id,
            epoch=epoch,
            last_ms=producer.last_ms,
            batches=tuple(
                ProducerBatch(first_seq=b.first_seq, last_seq=b.last_seq, base=b.base, ts=b.ts)
                for b in stored[-BATCHES_MAX:]
                if b.epoch == epoch
            ),
            coordinator_epoch=markers[-1].coordinator_epoch if markers else -1,
        )

    def remembered(self, wall_ms: int) -> list[int]:
        """The ids of those that were not silent for too long."""
        oldest_ms = wall_ms - self._bounds.expiration_ms
        return [number for number, producer in self._producers.items() if producer.last_ms > oldest_ms]

    def begin_snapshot(
        self,
        below: int,
        wall_ms: int,
        begun: tuple[OpenTransaction, ...] = (),
        *,
        transactional: bool = False,
    ) -> SnapshotWork:
        """The committed part, without the producers that were silent for too long. One at a time: end each by `forget`
        or `abandon`. `begun`, `transactional`: as the head that ends at `below` has them.

        Only a snapshot forgets what has expired, and memory follows once it is durable (`forget`), so that an owner
        and its successor know the same producers.
        """
        expired = []
        for producer_id, producer in self._producers.items():
            if producer.last_ms + self._bounds.expiration_ms > wall_ms or producer.last_base >= below:
                break
            if producer_id not in self._held:
                expired.append(producer_id)
        for producer_id in expired:
            self._parts.pop(producer_id, None)
            self._changed.pop(producer_id, None)
        self._kept_from = below
        return SnapshotWork(self, below, expired, begun, transactional=transactional)

    def renew_parts(self, below: int) -> Iterator[None]:
        """Makes the parts of those that changed, in steps. What is appended meanwhile lies above."""
        for number, producer_id in enumerate(list(self._changed), 1):
            producer = self._producers.get(producer_id)
            if producer is not None:
                entry = self.entry(producer_id, below)
                if entry is not None:
                    self._parts[producer_id] = encode_producer(entry)
                if producer.last_base < below:
                    self._changed.pop(producer_id, None)
            if number % STEP_PRODUCERS == 0:
                yield

    def parts(self) -> ValuesView[bytes]:
        return self._parts.values()

    def forget(self, work: SnapshotWork) -> None:
        """The snapshot is durable: drop what it left out, unless it was heard of since."""
        self._kept_from = _EVERYTHING
        for producer_id in work.left_out:
            producer = self._producers.get(producer_id)
            if producer is not None and producer.last_base < work.offset:
                self._drop(producer_id)

    def abandon(self, work: SnapshotWork) -> None:
        """The snapshot is not durable and will not be."""
        self._kept_from = _EVERYTHING
        self._changed.update(dict.fromkeys(number for number in work.left_out if number in self._producers))


class SnapshotWork:
    """A snapshot of a table at `offset`, made a step at a time, so that no request waits for the whole of it.

    `left_out` are the producers that expired.
    """

    __slots__ = ("_begun", "_table", "_transactional", "left_out", "offset")

    def __init__(
        self,
        table: ProducerTable,
        offset: int,
        left_out: list[int],
        begun: tuple[OpenTransaction, ...],
        *,
        transactional: bool,
    ) -> None:
        self._table = table
        self._begun = begun
        self._transactional = transactional
        self.offset = offset
        self.left_out = left_out

    def steps(self) -> Iterator[None]:
        """Exhaust these; other calls to the table may come between."""
        return self._table.renew_parts(self.offset)

    def data(self) -> bytes | None:
        """After the last step: the snapshot as it is stored, or None if it would hold no producer."""
        parts = self._table.parts()
        if not parts:
            return None
        return encode_snapshot(self.offset, parts, self._begun, transactional=self._transactional)
