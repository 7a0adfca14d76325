"""Record batches as rows, read from their headers: sizes, codecs, producer ids.

The rows include transaction markers, aborted batches, and the whole batch that contains the log start offset. No
record is opened. Checksums are compared.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

import numpy as np
import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.columns import timestamps
from kafscale.lake.heads import Heads, check_crcs
from kafscale.lake.scan import PLACE, placed, read_segments
from kafscale.lake.tables import TIME
from kafscale.log.heads import Seg
from kafscale.wire.batches import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from kafscale.wire.compression import Codec
from numpy.typing import NDArray

BATCHES: Final = pa.schema(
    {
        **PLACE,
        "base_offset": pa.int64(),
        "last_offset": pa.int64(),
        "records": pa.int32(),
        "bytes": pa.int64(),
        "codec": pa.string(),
        "base_timestamp": TIME,
        "max_timestamp": TIME,
        "timestampType": pa.int32(),
        "delete_horizon": TIME,
        "producer_id": pa.int64(),
        "producer_epoch": pa.int16(),
        "base_sequence": pa.int32(),
        "leader_epoch": pa.int32(),
        "is_transactional": pa.bool_(),
        "is_control": pa.bool_(),
        "segment": pa.int64(),
    }
)
"""A missing producer id and a missing timestamp are null. `segment` is the base offset of the batch's segment."""
_CODECS: Final = pa.array([*(codec.name.lower() for codec in Codec), "unknown", "unknown", "unknown"])


async def scan_batches(lake: Lake, log: Log, segments: Iterable[Seg]) -> AsyncGenerator[pa.RecordBatch, None]:
    """The batches of these segments that end after the log start offset. Raises StoreError and CorruptSegment."""
    async with aclosing(read_segments(lake, log, segments, first=log.start)) as found:
        async for seg, body, heads in found:
            check_crcs(body, heads)
            yield placed(_rows(heads, seg.base), log)


def _rows(heads: Heads, segment: int) -> pa.RecordBatch:
    flags = heads["attributes"]
    horizon = (flags & DELETE_HORIZON) != 0
    columns = {
        "base_offset": pa.array(heads["base_offset"]),
        "last_offset": pa.array(heads["base_offset"] + heads["last_offset_delta"]),
        "records": pa.array(heads["records"]),
        "bytes": pa.array(heads["size"]),
        "codec": _CODECS.take(pa.array(flags & CODEC_MASK)),
        "base_timestamp": _time(heads["base_timestamp"], ~horizon),
        "max_timestamp": _time(heads["max_timestamp"]),
        "timestampType": pa.array(((flags & LOG_APPEND_TIME) != 0).astype(np.int32)),
        "delete_horizon": _time(heads["base_timestamp"], horizon),
        **{name: _known(heads[name]) for name in ("producer_id", "producer_epoch", "base_sequence")},
        "leader_epoch": pa.array(heads["leader_epoch"]),
        "is_transactional": pa.array((flags & TRANSACTIONAL) != 0),
        "is_control": pa.array((flags & CONTROL) != 0),
        "segment": pa.repeat(pa.scalar(segment, pa.int64()), len(heads)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _known(numbers: NDArray[np.signedinteger]) -> pa.Array:
    """Replaces Kafka's -1 (no value) by null."""
    return pa.array(np.ascontiguousarray(numbers), mask=numbers < 0)


def _time(times_ms: NDArray[np.int64], told: NDArray[np.bool_] | None = None) -> pa.Array:
    given = times_ms >= 0
    return timestamps(np.ascontiguousarray(times_ms), given if told is None else given & told)
