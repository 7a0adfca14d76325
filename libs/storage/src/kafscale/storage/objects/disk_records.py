"""Where the directory store keeps what it remembers of an object beside its bytes; see `sidecar` for the
record.

Either in an extended attribute of the file itself, which shows with it and costs next to nothing, or, where
the file system has none, as the target of a symbolic link beside the objects' tree, named after the key and
the inode that holds the bytes. Both are made before the bytes get their key, so one link or rename shows
bytes and record together, and both are entries of the file system's journal: they need no write and no fsync
of their own.
"""

import contextlib
import errno
import os
from typing import Final, Protocol

from kafscale.storage.objects.disk_files import hash_file
from kafscale.storage.objects.durability import sync_directory
from kafscale.storage.objects.errors import StoreUnavailable
from kafscale.storage.objects.port import Metadata
from kafscale.storage.objects.sidecar import Record, decode_record, encode_record

ATTRIBUTE: Final = "user.kafscale"
_RACES_MAX: Final = 16  # each lost race needs another process to have changed the same directory meanwhile


class Records(Protocol):
    """The record of the open file `fd`, which lies, or is going to lie, under `key`."""

    def read(self, key: str, fd: int) -> Record | None:
        """None: there is none, as for a file that was put there by hand."""

    def write(self, key: str, fd: int, line: str) -> None:
        """Replace the record, if any, by this line. The caller holds the file open: its inode is nobody else's."""

    def forget(self, key: str, inode: int) -> None:
        """The inode has lost the key."""

    def sync(self, key: str) -> None:
        """Before the bytes are shown, where an fsync of the file alone would not make its record durable."""

    def adopt(self, key: str, fd: int) -> Record:
        """A record for bytes that were copied here or put here by hand."""


class AttributeRecords:
    """In the file's own extended attributes."""

    def read(self, key: str, fd: int) -> Record | None:
        try:
            return decode_record(os.getxattr(fd, ATTRIBUTE).decode())
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise

    def write(self, key: str, fd: int, line: str) -> None:
        os.setxattr(fd, ATTRIBUTE, line.encode())

    def forget(self, key: str, inode: int) -> None:
        """It goes with the file."""

    def sync(self, key: str) -> None:
        """An fsync of the file includes it."""

    def adopt(self, key: str, fd: int) -> Record:
        record = _fresh_record(fd, hash_file(fd), {})
        self.write(key, fd, encode_record(record))
        return record


class LinkRecords:
    """In links below `root`; `ordered` as in `durability`."""

    def __init__(self, root: str, *, ordered: bool) -> None:
        self._root = root
        self._ordered = ordered

    def read(self, key: str, fd: int) -> Record | None:
        try:
            return decode_record(os.readlink(self._path(key, os.fstat(fd).st_ino)))
        except FileNotFoundError:
            return None

    def write(self, key: str, fd: int, line: str) -> None:
        """A link that is there already is of an earlier life of the inode's number."""
        path = self._path(key, os.fstat(fd).st_ino)
        for _ in range(_RACES_MAX):
            try:
                os.symlink(line, path)
            except FileNotFoundError:
                make_parents(path, self._root, ordered=self._ordered)
            except FileExistsError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            else:
                return
        raise StoreUnavailable(key, "the directory of its record kept vanishing")

    def forget(self, key: str, inode: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(key, inode))

    def sync(self, key: str) -> None:
        sync_directory(os.path.dirname(self._path(key, 0)))

    def adopt(self, key: str, fd: int) -> Record:
        """With the metadata of the link for the same etag: a copy of the tree has other inodes, but all
        links.

        Two readers that adopt at once write the same record.
        """
        etag = hash_file(fd)
        record = _fresh_record(fd, etag, self._metadata_of(key, etag))
        self.write(key, fd, encode_record(record))
        return record

    def _metadata_of(self, key: str, etag: str) -> Metadata:
        directory, name = os.path.split(f"{self._root}/{key}")
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.rpartition(".")[0] == name and entry.is_symlink():
                    record = decode_record(os.readlink(entry.path))
                    if record is not None and record.etag == etag:
                        return record.metadata
        return {}

    def _path(self, key: str, inode: int) -> str:
        return f"{self._root}/{key}.{inode:x}"


def _fresh_record(fd: int, etag: str, metadata: Metadata) -> Record:
    status = os.fstat(fd)
    return Record(etag=etag, size=status.st_size, mtime_ns=status.st_mtime_ns, metadata=metadata)


def make_parents(path: str, root: str, *, ordered: bool) -> None:
    """The directories above a path, durable where the file system needs telling.

    A deleter may take an empty one away meanwhile: then the caller finds it missing and asks again.
    """
    directory = os.path.dirname(path)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.makedirs(directory, exist_ok=True)
    if not ordered:
        while directory != root:
            directory = os.path.dirname(directory)
            sync_directory(directory)
