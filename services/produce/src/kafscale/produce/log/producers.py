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
its repeat would be appended a second time. If only such batches are left, a batch that needs room is refused. So is a
batch of a producer that has IN_FLIGHT_MAX batches on their way to their commit: it would take the room of all others,
and each repeat is looked for among them. A producer also has its five newest committed batches and, while a snapshot
is being stored, the batches that were committed meanwhile.

The law of `ProducerBudget`: a table that grows beyond its equal share forgets its own producers, and one within its
share is given room by one of the largest (`by_size.py`). So a client that makes producer ids without end takes them
from itself, and not from those who have few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence, ValuesView
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

from kafscale.log.snapshots import (
    BATCHES_MAX,
    EXPIRY_MS,
    ProducerBatch,
    ProducerEntry,
    ProducerSnapshot,
    encode_producer,
    encode_snapshot,
)
from kafscale.produce.log.by_size import BySize
from kafscale.wire.errors import ErrorCode

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


PRODUCER_BYTES_MAX = 64 << 20
_SHRINK_SHARE = 16
"""The largest gives up so much of itself at once."""


class Table(Protocol):
    @property
    def bytes(self) -> int: ...
    @property
    def evictable(self) -> bool: ...
    def __len__(self) -> int: ...
    def evict(self, count: int) -> int: ...


class ProducerBudget:
    """See the module's law. Tables report each change of their bytes."""

    def __init__(self, bytes_max: int = PRODUCER_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.evicted = 0
        self._tables: set[Table] = set()
        self._by_size = BySize[Table]()

    @property
    def ids(self) -> int:
        """How many producers the tables hold."""
        return sum(map(len, self._tables))

    def join(self, table: Table) -> None:
        self._tables.add(table)
        self._count(table, 0, table.bytes)

    def leave(self, table: Table) -> None:
        self._tables.remove(table)
        self._count(table, table.bytes, 0)

    def resized(self, table: Table, before: int) -> None:
        """The table has other bytes than `before`."""
        self._count(table, before, table.bytes)

    def _count(self, table: Table, before: int, now: int) -> None:
        self.used_bytes += now - before
        self._by_size.resized(table, before, now)

    def make_room(self, asking: Table) -> bool:
        """Whether there is room for one more batch; False when nothing more can be forgotten."""
        while self.used_bytes >= self.bytes_max:
            if asking.evictable and asking.bytes * len(self._tables) > self.bytes_max:
                gone = asking.evict(1)
            else:
                gone = self._shrink_largest()
            if not gone:
                return False
            self.evicted += gone
        return True

    def _shrink_largest(self) -> int:
        """One that may forget nothing now is passed over, and is looked at again after the others of its size."""
        busy: list[Table] = []
        largest = None
        for table in self._by_size.largest_first():
            if table.evictable:
                largest = table
                break
            busy.append(table)
        for table in busy:
            self._by_size.last_in_class(table, table.bytes)
        return 0 if largest is None else largest.evict(len(largest) // _SHRINK_SHARE + 1)


_EVERYTHING = 1 << 63
PRODUCER_BYTES = 400
"""Memory of a producer without its batches, with its part of a snapshot; measured."""
BATCH_BYTES = 260
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

    __slots__ = (
        "_bounds",
        "_budget",
        "_changed",
        "_committed",
        "_covered",
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
        entries = [entry for entry in snapshot.producers if entry.batches]
        entries.sort(key=lambda entry: entry.batches[-1].base)
        for entry in entries[-table._bounds.ids_max :]:
            batches = [
                KnownBatch(entry.epoch, batch.first_seq, batch.last_seq, batch.base, batch.ts)
                for batch in entry.batches
            ]
            table._producers[entry.producer_id] = _Producer(batches, entry.last_ms)
            table._changed[entry.producer_id] = None
            table.bytes += PRODUCER_BYTES + BATCH_BYTES * len(batches)
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
        oldest = next(iter(self._producers)) == producer_id
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
        """Whether the one that was silent longest may be forgotten; else none may."""
        if not self._producers:
            return False
        return next(iter(self._producers.values())).batches[-1].base < self._committed

    def evict(self, count: int) -> int:
        """Forgets up to so many of those that were silent longest; how many they were."""
        for done in range(count):
            if not self.evictable:
                return done
            self._drop(next(iter(self._producers)))
        return count

    def _drop(self, producer_id: int) -> None:
        producer = self._producers.pop(producer_id)
        self._parts.pop(producer_id, None)
        self._changed.pop(producer_id, None)
        self._grow(-PRODUCER_BYTES - BATCH_BYTES * len(producer.batches))

    def _grow(self, size: int) -> None:
        self.bytes += size
        if self._budget is not None:
            self._budget.resized(self, self.bytes - size)

    # --- batches ---------------------------------------------------------------------------

    def replay(self, headers: Iterable[StoredHeader], wall_ms: int) -> None:
        """Take in committed batches in offset order; those the snapshot covers are passed over."""
        for header in headers:
            if header.producer_id < 0 or header.base_offset < self._covered:
                continue
            self.make_room(header.producer_id)
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
        newest = producer.batches[-1]
        if epoch == newest.epoch:
            if first_seq == (newest.last_seq + 1) & SEQUENCE_MASK:
                return ErrorCode.NONE
            return find_repeat(producer.batches, producer.first_seq, epoch, first_seq, last_seq)
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
        self.committed(committed)
        self._changed[producer_id] = None
        producer = self._producers.get(producer_id)
        if producer is None:
            self._producers[producer_id] = _Producer([batch], wall_ms)
            self._grow(PRODUCER_BYTES + BATCH_BYTES)
            return
        self._producers.move_to_end(producer_id)
        producer.last_ms = wall_ms
        batches = producer.batches
        before = len(batches)
        if epoch != batches[-1].epoch:
            producer.first_seq = first_seq
        batches.append(batch)
        done = min(self._committed, self._kept_from)
        gone = 0
        while len(batches) - gone > BATCHES_MAX and batches[gone + BATCHES_MAX].base < done:
            gone += 1
        del batches[:gone]
        self._grow(BATCH_BYTES * (len(batches) - before))

    # --- snapshots -------------------------------------------------------------------------

    def entry(self, producer_id: int, below: int) -> ProducerEntry | None:
        """What is committed of a producer: its newest batches under `below`, which must be a committed log end."""
        producer = self._producers.get(producer_id)
        stored = [batch for batch in producer.batches if batch.base < below] if producer else []
        if producer is None or not stored:
            return None
        epoch = stored[-1].epoch
        return ProducerEntry(
            producer_id=producer_id,
            epoch=epoch,
            last_ms=producer.last_ms,
            batches=tuple(
                ProducerBatch(first_seq=b.first_seq, last_seq=b.last_seq, base=b.base, ts=b.ts)
                for b in stored[-BATCHES_MAX:]
                if b.epoch == epoch
            ),
        )

    def remembered(self, wall_ms: int) -> list[int]:
        """The ids of those that were not silent for too long."""
        oldest_ms = wall_ms - self._bounds.expiration_ms
        return [number for number, producer in self._producers.items() if producer.last_ms > oldest_ms]

    def begin_snapshot(self, below: int, wall_ms: int) -> SnapshotWork:
        """The committed part, without the producers that were silent for too long. One at a time: end each by `forget`
        or `abandon`.

        Only a snapshot forgets what has expired, and memory follows once it is durable (`forget`), so that an owner
        and its successor know the same producers.
        """
        expired = []
        for producer_id, producer in self._producers.items():
            if producer.last_ms + self._bounds.expiration_ms > wall_ms or producer.batches[-1].base >= below:
                break
            expired.append(producer_id)
        for producer_id in expired:
            self._parts.pop(producer_id, None)
            self._changed.pop(producer_id, None)
        self._kept_from = below
        return SnapshotWork(self, below, expired)

    def renew_parts(self, below: int) -> Iterator[None]:
        """Makes the parts of those that changed, in steps. What is appended meanwhile lies above."""
        for number, producer_id in enumerate(list(self._changed), 1):
            producer = self._producers.get(producer_id)
            if producer is not None:
                entry = self.entry(producer_id, below)
                if entry is not None:
                    self._parts[producer_id] = encode_producer(entry)
                if producer.batches[-1].base < below:
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
            if producer is not None and producer.batches[-1].base < work.offset:
                self._drop(producer_id)

    def abandon(self, work: SnapshotWork) -> None:
        """The snapshot is not durable and will not be."""
        self._kept_from = _EVERYTHING
        self._changed.update(dict.fromkeys(number for number in work.left_out if number in self._producers))


class SnapshotWork:
    """A snapshot of a table at `offset`, made a step at a time, so that no request waits for the whole of it.

    `left_out` are the producers that expired.
    """

    __slots__ = ("_table", "left_out", "offset")

    def __init__(self, table: ProducerTable, offset: int, left_out: list[int]) -> None:
        self._table = table
        self.offset = offset
        self.left_out = left_out

    def steps(self) -> Iterator[None]:
        """Exhaust these; other calls to the table may come between."""
        return self._table.renew_parts(self.offset)

    def data(self) -> bytes | None:
        """After the last step: the snapshot as it is stored, or None if it would hold no producer."""
        parts = self._table.parts()
        return encode_snapshot(self.offset, parts) if parts else None
