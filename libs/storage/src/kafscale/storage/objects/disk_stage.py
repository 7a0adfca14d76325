"""Files that have no key yet. If the file system supports it, they are unnamed and vanish with their process."""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.storage.objects.disk_files import write_body
from kafscale.storage.objects.disk_records import Records
from kafscale.storage.objects.port import Buffer
from kafscale.storage.objects.sidecar import record_line


@dataclass(slots=True)
class Staged:
    """Written bytes and their record, before they get their key; `source` is the path to link."""

    fd: int
    inode: int
    etag: str
    source: str
    shown: bool = False


class Stage:
    """The store's directory for such files."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.unnamed = True

    def prepare(self) -> None:
        """Checks whether the file system supports unnamed files."""
        self.unnamed = self._can_be_unnamed()

    def _can_be_unnamed(self) -> bool:
        try:
            os.close(self._open_unnamed())
        except OSError:
            return False
        return os.path.isdir("/proc/self/fd")

    def fresh_name(self) -> str:
        return f"{self._directory}/{uuid.uuid4().hex}"

    def open(self) -> tuple[int, str]:
        """An empty file and its name; "" for an unnamed one."""
        if self.unnamed:
            return self._open_unnamed(), ""
        name = self.fresh_name()
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), name

    def _open_unnamed(self) -> int:
        return os.open(self._directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)


def fill(fd: int, name: str, key: str, body: Sequence[Buffer], described: str, records: Records) -> Staged:
    """Writes bytes and record into an open file; `described` is its encoded metadata."""
    etag, size = write_body(fd, body)
    status = os.fstat(fd)
    records.write(key, fd, record_line(etag, size, status.st_mtime_ns, described))
    return Staged(fd, status.st_ino, etag, name or f"/proc/self/fd/{fd}")
