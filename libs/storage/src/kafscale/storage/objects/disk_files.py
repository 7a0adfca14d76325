"""Whole reads and writes of a file descriptor, and the hash that serves as etag."""

import os
from collections.abc import Sequence
from typing import Final

import xxhash
from kafscale.storage.objects.port import Buffer

_BUFFERS_MAX: Final = 1024  # Linux's IOV_MAX
_HASH_CHUNK_BYTES: Final = 1 << 20


def write_body(fd: int, body: Sequence[Buffer]) -> tuple[str, int]:
    """Writes the buffers in order without joining them. Returns their etag and total size."""
    parts = [memoryview(part) for part in body if len(part)]
    digest = xxhash.xxh3_128()
    size = 0
    for part in parts:
        digest.update(part)
        size += len(part)
    while parts:
        written = os.writev(fd, parts[:_BUFFERS_MAX])
        parts = _rest(parts, written)
    return digest.hexdigest(), size


def _rest(parts: list[memoryview], written: int) -> list[memoryview]:
    for n, part in enumerate(parts):
        if written < len(part):
            return [part[written:], *parts[n + 1 :]]
        written -= len(part)
    return []


def read_range(fd: int, start: int, stop: int) -> bytes:
    """Bytes [start, stop), which must exist in the file."""
    if stop <= start:
        return b""
    data = os.pread(fd, stop - start, start)
    if len(data) == stop - start:
        return data
    parts = [data]
    at = start + len(data)
    while at < stop and parts[-1]:
        parts.append(os.pread(fd, stop - at, at))
        at += len(parts[-1])
    return b"".join(parts)


def hash_file(fd: int) -> str:
    """The etag that `write_body` would have given these bytes."""
    digest = xxhash.xxh3_128()
    at = 0
    while chunk := os.pread(fd, _HASH_CHUNK_BYTES, at):
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()
