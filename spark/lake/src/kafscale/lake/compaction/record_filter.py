"""Which records of a group of segments stay. Pure: Kafka's rules (`Cleaner.shouldRetainRecord`, `discardBatchRecords`).

A record stays if no newer record has its key. A tombstone stays until the delete horizon of its batch. Records without
a key and records of aborted transactions are removed. Records are opened only for their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.columns import binaries, opened, times_of
from kafscale.lake.compaction.latest_offsets import SCHEMA, LatestOffsets
from kafscale.lake.heads import Heads, are_aborted
from kafscale.lake.rows import Positions
from kafscale.log.heads import Aborted, Seg
from kafscale.wire.batches import CONTROL, DELETE_HORIZON
from numpy.typing import NDArray

NEVER: Final = (1 << 63) - 1
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSegment:
    """A committed segment with its object's bytes and the headers of its batches."""

    seg: Seg
    data: bytes
    heads: Heads


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredSegment:
    """Of a source: which of its batches hold records at all (`data`), and which of these records stay.

    `alive`, `times` and `tombstones` have a row for each record, of the data batches in their order; batch i of these
    has rows [first[i], first[i] + count[i]).
    """

    source: LoadedSegment
    data: Flags
    first: Positions
    count: Positions
    alive: Flags
    times: Positions
    tombstones: Flags

    def per_batch(self, flags: Flags) -> Positions:
        """How many records of each data batch."""
        if not len(self.first):
            return np.empty(0, np.int64)
        return np.add.reduceat(flags, self.first, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What is read of a source's records, before anything is decided."""

    data: Flags
    keys: list[pa.Array]
    offsets: Positions
    times: Positions
    tombstones: Flags
    horizons: Positions


def filter_records(
    sources: Sequence[LoadedSegment], newest: LatestOffsets, aborted: Sequence[Aborted], now_ms: int
) -> list[FilteredSegment]:
    """All of a group at once, since a look into the keys costs as much as there are keys. Raises CorruptSegment."""
    opened_sources = [_open(source, aborted) for source in sources]
    keys = pa.chunked_array([key for each in opened_sources for key in each.keys], pa.binary())
    offsets = _joined([each.offsets for each in opened_sources])
    gone = newest.superseded(keys, offsets) | pc.is_null(keys).to_numpy()
    found = []
    at = 0
    for source, each in zip(sources, opened_sources, strict=True):
        mine = slice(at, at + len(each.offsets))
        at = mine.stop
        counts = source.heads["records"][each.data].astype(np.int64)
        found.append(
            FilteredSegment(
                source=source,
                data=each.data,
                first=np.cumsum(counts) - counts,
                count=counts,
                alive=~(gone[mine] | (each.tombstones & (each.horizons <= now_ms))),
                times=each.times,
                tombstones=each.tombstones,
            )
        )
    return found


def keys_of(source: LoadedSegment, aborted: Sequence[Aborted]) -> pa.Table:
    """Key and offset of each record that counts (`latest_offsets.SCHEMA`); keys may be null. Raises CorruptSegment."""
    found = _open(source, aborted)
    keys = pa.chunked_array(found.keys, pa.binary())
    return pa.table([keys, pa.array(found.offsets)], schema=SCHEMA)


def _open(source: LoadedSegment, aborted: Sequence[Aborted]) -> _Opened:
    heads = source.heads
    data = (heads["attributes"] & CONTROL) == 0
    data &= (heads["records"] > 0) & ~are_aborted(heads, aborted)
    keys: list[pa.Array] = []
    parts: list[tuple[Positions, Positions, Flags, Positions]] = []
    for some, bodies, rows in opened(source.data, heads[data]):
        keys.append(binaries(bodies.data, rows.key_at, rows.key_length))
        flagged = (some["attributes"] & DELETE_HORIZON) != 0
        horizons = np.where(flagged, some["base_timestamp"], NEVER)[rows.batch]
        offsets = some["base_offset"][rows.batch] + rows.offset_delta
        parts.append((offsets, times_of(rows, some), rows.value_length < 0, horizons))
    return _Opened(
        data=data,
        keys=keys,
        offsets=_joined([part[0] for part in parts]),
        times=_joined([part[1] for part in parts]),
        tombstones=np.concatenate([np.empty(0, np.bool_), *(part[2] for part in parts)]),
        horizons=_joined([part[3] for part in parts]),
    )


def _joined(parts: Sequence[Positions]) -> Positions:
    return np.concatenate([np.empty(0, np.int64), *parts])
