"""The batches of a segment, read from their headers: positions, contents, and checks that they are complete.

A header has 61 bytes, and no record is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

import numpy as np
from kafscale.log.heads import Aborted
from kafscale.wire.batches import HEADER_SIZE, LENGTH_OFFSET, MAGIC, TRANSACTIONAL, crc32c
from kafscale.wire.buffers import Buffer
from numpy.typing import NDArray

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records", ">i4"),
    ]
)
"""The header of Kafka's record batch, magic 2."""
HEADS: Final = np.dtype(
    [
        ("position", "i8"),
        ("size", "i8"),
        *((name, HEADER[name].newbyteorder("=")) for name in HEADER.names or ()),
    ]
)
"""A batch: its position in the buffer, and its header."""

_LENGTH: Final = Struct(">i")
_CRC_START: Final = 21

Heads = NDArray[np.void]
"""One row of HEADS for each batch, in the order of the log."""


class CorruptSegment(Exception):
    """The bytes of a segment do not match its format."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason}, at byte {position}")
        self.position = position


def scan_heads(segment: Buffer, start: int, end: int) -> Heads:
    """The headers of all batches in bytes [start, end), which begin and end with batches; checksums are not read."""
    positions = list(_positions(segment, start, end))
    data = np.frombuffer(segment, np.uint8)
    found = data[np.asarray(positions, np.int64)[:, None] + np.arange(HEADER_SIZE)].view(HEADER)[:, 0]
    heads = np.empty(len(positions), HEADS)
    heads["position"] = positions
    for name in HEADER.names or ():
        heads[name] = found[name]
    heads["size"] = heads["length"].astype(np.int64) + LENGTH_OFFSET
    wrong = np.flatnonzero(
        (heads["magic"] != MAGIC) | (heads["records"] < 0) | (heads["last_offset_delta"] < 0)
    )
    if wrong.size:
        raise CorruptSegment("a batch's header says what no batch can", int(heads["position"][wrong[0]]))
    return heads


def _positions(segment: Buffer, start: int, end: int) -> list[int]:
    positions = []
    position = start
    while position < end:
        if end - position < HEADER_SIZE:
            raise CorruptSegment("a batch is cut short", position)
        (length,) = _LENGTH.unpack_from(segment, position + 8)
        size = length + LENGTH_OFFSET
        if not HEADER_SIZE <= size <= end - position:
            raise CorruptSegment(f"a batch of {size} bytes", position)
        positions.append(position)
        position += size
    return positions


def check_offsets(heads: Heads, first: int, last: int) -> None:
    """Checks that batches are in order within offsets [first, last]. Checksums do not cover the base offset."""
    bases = heads["base_offset"]
    wrong = (bases < first) | (heads["last_offset_delta"] > last - bases)
    wrong[1:] |= bases[1:] - bases[:-1] <= heads["last_offset_delta"][:-1]
    if wrong.any():
        raise CorruptSegment("a batch's offset is not its place's", int(heads["position"][np.argmax(wrong)]))


def without_aborted(heads: Heads, aborted: Iterable[Aborted]) -> Heads:
    """The batches that read_committed readers see: none of an aborted transaction."""
    kept: Heads = heads[~are_aborted(heads, aborted)]
    return kept


def are_aborted(heads: Heads, aborted: Iterable[Aborted]) -> NDArray[np.bool_]:
    """Which batches belong to an aborted transaction."""
    inside: NDArray[np.bool_] = (heads["attributes"] & TRANSACTIONAL) != 0
    if not inside.any():
        return inside
    gone = np.zeros(len(heads), np.bool_)
    for each in aborted:
        bases = heads["base_offset"]
        gone |= (heads["producer_id"] == each.producer_id) & (bases >= each.first) & (bases <= each.last)
    return inside & gone


def check_crcs(segment: Buffer, heads: Heads) -> None:
    """Checks each batch's checksum, which covers all of the batch except the fields that brokers write."""
    view = memoryview(segment)
    for position, size, crc in zip(
        heads["position"].tolist(), heads["size"].tolist(), heads["crc"].tolist(), strict=True
    ):
        if crc32c(view[position + _CRC_START : position + size]) != crc:
            raise CorruptSegment("a batch's checksum", position)
