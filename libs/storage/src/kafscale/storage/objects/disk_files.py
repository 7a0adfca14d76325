"""What the directory store asks of the operating system: whole reads and writes, lasting names, errors of the port.

POSIX guarantees that a name survives a power cut only after an fsync of its directory. ext4 and xfs keep one ordered
journal, so an fsync of the file also makes all earlier name changes durable, including its own. tmpfs has nothing to
make durable. On all other or unknown file systems, each directory is synced.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import xxhash
from kafscale.storage.objects.disk_direct import DirectWrites
from kafscale.storage.objects.port import Buffer, StoreError, StoreFull, StoreRefused, StoreUnavailable

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR}
)


class translated:
    """Raises the port's errors instead of OSError. It is a class for speed: each PUT enters it twice."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise in_our_words(self._key, error) from error


def in_our_words(key: str, error: OSError) -> StoreError:
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        return StoreFull(key, reason)
    if error.errno in _REFUSED:
        return StoreRefused(key, reason)
    return StoreUnavailable(key, reason)


_BUFFERS_MAX: Final = 1024  # Linux's IOV_MAX
_HASH_CHUNK_BYTES: Final = 1 << 20


def write_body(fd: int, body: Sequence[Buffer], direct: DirectWrites) -> tuple[str, int]:
    """Writes the buffers in order into an empty file, without joining them. Returns their etag and total size."""
    parts = [memoryview(part) for part in body if len(part)]
    digest = xxhash.xxh3_128()
    size = 0
    for part in parts:
        digest.update(part)
        size += len(part)
    at = direct.write_front(fd, parts, size) if direct.takes(size) else 0
    parts = _rest(parts, at)
    while parts:
        written = os.pwritev(fd, parts[:_BUFFERS_MAX], at)
        parts = _rest(parts, written)
        at += written
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


_NAMES_FOLLOW_FSYNC: Final = frozenset({"ext4", "xfs", "tmpfs"})


def names_follow_fsync(path: str, mountinfo: str | None = None) -> bool:
    """Whether an fsync of a file also persists the names made before it on this file system."""
    device = os.stat(path).st_dev
    text = mountinfo if mountinfo is not None else _read_mountinfo()
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ")[2:3] == [wanted]:
            return after.split(" ")[0] in _NAMES_FOLLOW_FSYNC
    return False


def _read_mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable. If another process removed it, makes the removal durable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        sync_directory(os.path.dirname(path))
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
