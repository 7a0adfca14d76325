"""Rewrites a group of segments as one, with the records that stay. Pure: Kafka's batches (`MemoryRecords.filterTo`).

A batch that keeps all of its records is copied byte for byte. So is a transaction's marker, unless it gets its delete
horizon or goes (`markers.py`). A batch that keeps some records copies their bytes behind its own header: first and last
offset, times, producer, epoch, sequence, codec and flags stay. The first batch with a tombstone that stays gets its
delete horizon, which replaces the base timestamp, so the times of its records are written again. A batch that keeps no
records is removed. Only its header stays if it was the last batch of a live producer, or the first or last of the
group: then the bytes still show the extent of the group, programs can check a segment by its format, and a consumer
inside a gap advances to the end of the gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from kafscale.lake.columns import opened
from kafscale.lake.compaction.markers import LoneMarkers, due_markers
from kafscale.lake.compaction.record_filter import NEVER, FilteredSegment, Flags
from kafscale.lake.rows import Bytes, Positions, read_varints
from kafscale.log.segment import BatchInfo
from kafscale.log.snapshots import EXPIRY_MS
from kafscale.wire.batches import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TIMESTAMP_NONE,
    TRANSACTIONAL,
    BatchHeader,
    pack_batch,
)
from kafscale.wire.buffers import Buffer
from kafscale.wire.compression import compress
from kafscale.wire.records import append_record, records_in, signed_varint
from msgspec.structs import replace

_HEADER_FIELDS: Final = slice(2, None)  # of a row of HEADS: behind its place in the segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Batches as they go into one segment, and what its commit record says of them."""

    batches: tuple[BatchInfo, ...]
    parts: tuple[Buffer, ...]
    min_ts: int
    max_ts: int
    delete_horizon_ms: int
    changed: bool  # something went, or got its horizon
    markers_gone: frozenset[int] = frozenset()  # their offsets

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)


@dataclass(frozen=True, slots=True)
class _Batch:
    header: BatchHeader
    data: Buffer
    oldest_ms: int
    horizon_ms: int
    changed: bool


def rewrite(
    group: Sequence[FilteredSegment], markers: LoneMarkers, *, now_ms: int, delete_retention_ms: int
) -> Rewritten:
    """`group`: neighbours, oldest first. Raises CorruptSegment."""
    horizon_ms = min(now_ms + delete_retention_ms, NEVER)
    ends, live = _ends_of(group), _live(group, now_ms)
    gone: set[int] = set()
    kept: list[_Batch] = []
    for number, judged in enumerate(group):
        heads = judged.source.heads
        marked = _Markers(markers.take(heads), set(np.flatnonzero(due_markers(heads, now_ms)).tolist()))
        gone |= set(heads["base_offset"][list(marked.gone)].tolist())
        stay = {at: (source, at) in live for source, at in ends | live if source == number}
        kept += _batches(judged, stay, marked, horizon_ms)
    times = [batch.oldest_ms for batch in kept if batch.oldest_ms != TIMESTAMP_NONE]
    horizons = [batch.horizon_ms for batch in kept if batch.horizon_ms]
    count = sum(len(judged.source.heads) for judged in group)
    return Rewritten(
        batches=tuple(
            BatchInfo(b.header.base_offset, b.header.last_offset, len(b.data), b.header.records_count)
            for b in kept
        ),
        parts=tuple(batch.data for batch in kept),
        min_ts=min(times, default=TIMESTAMP_NONE),
        max_ts=max(batch.header.max_timestamp for batch in kept),
        delete_horizon_ms=min(horizons, default=0),
        changed=len(kept) < count or any(batch.changed for batch in kept),
        markers_gone=frozenset(gone),
    )


def _ends_of(group: Sequence[FilteredSegment]) -> set[tuple[int, int]]:
    """Batches (source, place in it) whose headers stay even if no record does: they show the extent of the group."""
    return {(0, 0), (len(group) - 1, len(group[-1].source.heads) - 1)}


def _live(group: Sequence[FilteredSegment], now_ms: int) -> set[tuple[int, int]]:
    """The same, as the last batches of live producers."""
    last_of: dict[int, tuple[int, int]] = {}
    for number, judged in enumerate(group):
        heads = judged.source.heads
        if judged.source.seg.created_ms + EXPIRY_MS <= now_ms:
            continue
        ours = np.flatnonzero((heads["producer_id"] >= 0) & ((heads["attributes"] & CONTROL) == 0))
        places = zip(heads["producer_id"][ours].tolist(), ours.tolist(), strict=True)
        last_of |= {producer: (number, place) for producer, place in places}
    return set(last_of.values())


class _Markers(NamedTuple):
    """The places of markers that get their horizon, and of those that go."""

    dated: set[int]
    gone: set[int]


def _batches(
    judged: FilteredSegment, stay: Mapping[int, bool], markers: _Markers, horizon_ms: int
) -> Iterator[_Batch]:
    """What is left of a source's batches, in their order. `stay`: those whose headers stay, and whether that is for a
    live producer."""
    source = judged.source
    view = memoryview(source.data)
    alive = judged.per_batch(judged.alive)
    tombstones = judged.per_batch(judged.alive & judged.tombstones)
    flagged = (source.heads["attributes"][judged.data] & DELETE_HORIZON) != 0
    dated = (tombstones > 0) & ~flagged
    made = _remade(judged, (alive > 0) & ((alive < judged.count) | dated), dated, horizon_ms)
    oldest = _oldest(judged)
    rows = dict(zip(np.flatnonzero(judged.data).tolist(), range(len(alive)), strict=True))
    for place, row in enumerate(source.heads.tolist()):
        header = BatchHeader(*row[_HEADER_FIELDS])
        data = view[row[0] : row[0] + row[1]]
        number = rows.get(place)
        if header.is_control and header.records_count and place not in markers.gone:
            yield _marker(header, data, horizon_ms if place in markers.dated else None)
        elif number is not None and alive[number]:
            horizon = header.base_timestamp if flagged[number] else horizon_ms
            remade = made.get(number)
            yield _Batch(
                header if remade is None else remade[0],
                data if remade is None else remade[1],
                oldest[number],
                horizon if tombstones[number] else 0,
                remade is not None,
            )
        elif place in stay:
            empty = _emptied(header, live=stay[place])
            changed = header.records_count > 0 or empty.attributes != header.attributes
            yield _Batch(empty, pack_batch(empty, b""), TIMESTAMP_NONE, 0, changed)


def _marker(header: BatchHeader, data: Buffer, horizon_ms: int | None) -> _Batch:
    """Its one record keeps its time. `horizon_ms`: it gets this horizon now."""
    if horizon_ms is None:
        known = header.base_timestamp if header.attributes & DELETE_HORIZON else 0
        return _Batch(header, data, header.max_timestamp, known, False)
    record = next(records_in(data, header))
    body = bytearray()
    append_record(body, record, timestamp_delta=record.timestamp - horizon_ms, offset_delta=0)
    dated = replace(header, attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
    return _Batch(dated, pack_batch(dated, body), header.max_timestamp, horizon_ms, True)


def _oldest(judged: FilteredSegment) -> list[int]:
    """The least time of the records that stay, of each data batch."""
    if not len(judged.first):
        return []
    times = np.minimum.reduceat(np.where(judged.alive, judged.times, NEVER), judged.first)
    oldest: list[int] = np.maximum(times, TIMESTAMP_NONE).tolist()
    return oldest


def _emptied(header: BatchHeader, *, live: bool) -> BatchHeader:
    """No record has a time any more, so the batch has none: what a segment's newest time names is a record. What was of
    a transaction and stays for no producer is nobody's: its marker may go."""
    if not live and header.attributes & (TRANSACTIONAL | CONTROL):
        nobody = header.attributes & ~(TRANSACTIONAL | CONTROL)
        header = replace(header, attributes=nobody, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    return replace(
        header,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp=TIMESTAMP_NONE,
        max_timestamp=TIMESTAMP_NONE,
        records_count=0,
    )


def _remade(
    judged: FilteredSegment, wanted: Flags, dated: Flags, horizon_ms: int
) -> dict[int, tuple[BatchHeader, Buffer]]:
    """The wanted data batches, by their number, without the records that go."""
    made: dict[int, tuple[BatchHeader, Buffer]] = {}
    numbers = iter(np.flatnonzero(wanted).tolist())
    heads = judged.source.heads[judged.data][wanted]
    for some, bodies, rows in opened(judged.source.data, heads):
        ends = np.cumsum(bodies.counts)
        for at, row in enumerate(some.tolist()):
            number = next(numbers)
            mine = slice(int(ends[at] - bodies.counts[at]), int(ends[at]))
            keep = judged.alive[judged.first[number] :][: judged.count[number]]
            times = judged.times[judged.first[number] :][: judged.count[number]]
            header = _narrowed(BatchHeader(*row[_HEADER_FIELDS]), keep, times)
            starts = np.concatenate([bodies.starts[at : at + 1], rows.ends[mine][:-1]])
            if dated[number]:
                shift_ms = header.base_timestamp - horizon_ms
                body = _redated(bodies.data, starts[keep], rows.ends[mine][keep], shift_ms)
                flags = header.attributes | DELETE_HORIZON
                header = replace(header, attributes=flags, base_timestamp=horizon_ms)
            else:
                whole = bodies.data[bodies.starts[at] : bodies.ends[at]]
                body = whole[np.repeat(keep, rows.ends[mine] - starts)].tobytes()
            made[number] = header, pack_batch(header, compress(header.codec, body))
    return made


def _narrowed(header: BatchHeader, keep: Flags, times: Positions) -> BatchHeader:
    appended = header.attributes & LOG_APPEND_TIME
    newest = header.max_timestamp if appended else int(times[keep].max())
    return replace(header, records_count=int(keep.sum()), max_timestamp=newest)


def _redated(data: Bytes, starts: Positions, ends: Positions, shift_ms: int) -> bytes:
    """Records [starts, ends) with `shift_ms` added to their times' distance from the batch's base."""
    _, at = read_varints(data, starts)
    deltas, rest = read_varints(data, at + 1)
    deltas += shift_ms
    view = data.data
    out = bytearray()
    for flags_at, delta, rest_at, end in zip(
        at.tolist(), deltas.tolist(), rest.tolist(), ends.tolist(), strict=True
    ):
        record = b"".join((view[flags_at : flags_at + 1], signed_varint(delta), view[rest_at:end]))
        out += signed_varint(len(record)) + record
    return bytes(out)
