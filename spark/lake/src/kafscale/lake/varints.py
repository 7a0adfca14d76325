"""Reads zig-zag varints (protobuf's sint) at many positions at once.

Two bytes are read at every position; most values need no more. Positions outside of the data read the nearest byte.
The caller must compare each end position with the expected one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

BYTES_MAX: Final = 10


class BrokenVarint(ValueError):
    """A varint has more bytes than 64 bits need."""


def read_varints(data: Bytes, at: Positions) -> tuple[Positions, Positions]:
    """The values at these positions, and the positions after them."""
    low = data.take(at, mode="clip")
    longer = low >= 0x80
    raw = (low & 0x7F).astype(np.int64)
    behind = at + 1
    if longer.any():
        high = data.take(behind, mode="clip")
        high[~longer] = 0
        raw |= (high & 0x7F).astype(np.int64) << 7
        behind += longer
        if (high >= 0x80).any():
            _finish(data, raw, behind, np.flatnonzero(high >= 0x80))
    return (raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF ^ -(raw & 1), behind


def _finish(data: Bytes, raw: Positions, behind: Positions, rows: Positions) -> None:
    """Reads the third and later bytes of the few varints that have them."""
    for shift in range(14, 7 * BYTES_MAX, 7):
        byte = data.take(behind[rows], mode="clip").astype(np.int64)
        behind[rows] += 1
        raw[rows] |= (byte & 0x7F) << shift
        rows = rows[byte >= 0x80]
        if not rows.size:
            return
    raise BrokenVarint(f"a varint of more than {BYTES_MAX} bytes")
