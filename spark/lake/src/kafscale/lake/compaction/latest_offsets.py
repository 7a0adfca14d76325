"""The newest offset of each key in the dirty range of a log, in bounded memory. Pure.

The keys themselves are kept, not hashes, so two keys are never confused. When the limit is reached, the range ends
before the segment that would exceed it, as in Kafka when its buffer is full; the next pass takes the rest. Keys of
aborted transactions are left out, because they would hide valid records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.rows import Positions
from numpy.typing import NDArray

KEYS_MAX: Final = 4_000_000
KEY_BYTES_MAX: Final = 256 << 20
FOLD_ROWS: Final = 1 << 18
"""Rows that wait at least before they are folded in: folding costs as much as there are keys."""
SCHEMA: Final = pa.schema({"key": pa.binary(), "offset": pa.int64()})


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestOffsets:
    """The keys' newest offsets among the records below `end`."""

    keys: pa.Array
    offsets: Positions
    end: int

    def superseded(self, keys: pa.Array | pa.ChunkedArray, offsets: Positions) -> NDArray[np.bool_]:
        """Which of these records a newer one of their key replaces."""
        if not len(self.keys):
            return np.zeros(len(offsets), np.bool_)
        places = pc.fill_null(pc.index_in(keys, value_set=self.keys), -1).to_numpy()
        found: NDArray[np.bool_] = (places >= 0) & (offsets < self.offsets[places])
        return found


class LatestOffsetsBuilder:
    """Takes a range segment by segment. A first segment is taken whatever its size, so every pass gets on."""

    def __init__(self, start: int, *, keys_max: int = KEYS_MAX, key_bytes_max: int = KEY_BYTES_MAX) -> None:
        self._keys_max = keys_max
        self._key_bytes_max = key_bytes_max
        self._folded = SCHEMA.empty_table()
        self._waiting: list[pa.Table] = []
        self._end = start

    def add(self, records: pa.Table, end: int) -> bool:
        """All of a segment's records (SCHEMA; keys may be null), which ends at `end`; False: it is not taken."""
        taken = _fold([records.filter(pc.is_valid(records["key"]))])
        waiting = [*self._waiting, taken]
        rows = sum(table.num_rows for table in waiting)
        size = sum(table["key"].nbytes for table in (self._folded, *waiting))
        if self._folded.num_rows + rows > self._keys_max or size > self._key_bytes_max:
            folded = _fold([self._folded, *waiting])
            full = folded.num_rows > self._keys_max or folded["key"].nbytes > self._key_bytes_max
            if full and (self._folded.num_rows or self._waiting):
                return False
            self._folded, self._waiting = folded, []
        elif rows > max(FOLD_ROWS, self._folded.num_rows):
            self._folded, self._waiting = _fold([self._folded, *waiting]), []
        else:
            self._waiting = waiting
        self._end = end
        return True

    def done(self) -> LatestOffsets:
        found = _fold([self._folded, *self._waiting])
        offsets = found["offset"].to_numpy()
        return LatestOffsets(keys=found["key"].combine_chunks(), offsets=offsets, end=self._end)


def _fold(tables: list[pa.Table]) -> pa.Table:
    """One row for each key, with its greatest offset."""
    grouped = pa.concat_tables(tables).group_by("key", use_threads=False).aggregate([("offset", "max")])
    return pa.table([grouped["key"], grouped["offset_max"]], schema=SCHEMA)
