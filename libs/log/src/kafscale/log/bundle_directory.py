"""Reads the directory of a stored bundle, by ranges: the slices stay in the store."""

from __future__ import annotations

from typing import Final

from kafscale.log.bundle import (
    BUNDLE_HEADER_SIZE,
    ENTRY_SIZE,
    TRAILER_SIZE,
    Directory,
    parse_directory,
    parse_trailer,
)
from kafscale.storage.objects import ObjectInfo, ObjectStore

TAIL_BYTES: Final = TRAILER_SIZE + 256 * ENTRY_SIZE
"""Read from the end of a bundle: trailer and, unless it has more slices, the directory."""


async def read_directory(store: ObjectStore, info: ObjectInfo) -> Directory:
    """`info` as a listing or HEAD returned it. Raises ObjectNotFound, PreconditionFailed, StoreError, SegmentError."""
    header = await store.get(info.key, if_match=info.etag, end=BUNDLE_HEADER_SIZE)
    start = max(0, info.size - TAIL_BYTES)
    tail = await store.get(info.key, if_match=info.etag, start=start, end=info.size)
    trailer = parse_trailer(tail[-TRAILER_SIZE:], info.size)
    if trailer.position < start:
        start = trailer.position
        tail = await store.get(info.key, if_match=info.etag, start=start, end=info.size)
    return parse_directory(header, tail[trailer.position - start : trailer.end - start], trailer)
