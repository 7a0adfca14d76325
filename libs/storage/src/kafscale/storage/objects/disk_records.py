"""The tree of records beside the objects: see `sidecar` for what a record is and why it is a link."""

import contextlib
import os
from typing import Final

from kafscale.storage.objects.disk_files import hash_file
from kafscale.storage.objects.durability import sync_directory
from kafscale.storage.objects.errors import StoreUnavailable
from kafscale.storage.objects.port import Metadata
from kafscale.storage.objects.sidecar import Record, decode_record, encode_record, record_name

_RACES_MAX: Final = 16  # each lost race needs another process to have changed the same directory meanwhile


def make_parents(path: str, root: str, *, ordered: bool) -> None:
    """The directories above a path, durable where the file system needs telling."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    if not ordered:
        while directory != root:
            directory = os.path.dirname(directory)
            sync_directory(directory)


class RecordTree:
    """Records of the objects below `root`; `ordered` as in `durability`."""

    def __init__(self, root: str, *, ordered: bool) -> None:
        self._root = root
        self._ordered = ordered

    def read(self, key: str, inode: int) -> Record | None:
        try:
            return decode_record(os.readlink(self._path(key, inode)))
        except FileNotFoundError:
            return None

    def write(self, key: str, inode: int, record: Record) -> None:
        """A record already there is of an earlier life of the inode's number, which is the caller's now."""
        target = encode_record(record)
        path = self._path(key, inode)
        for _ in range(_RACES_MAX):
            try:
                os.symlink(target, path)
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
        """Make the names of the key's records durable."""
        sync_directory(os.path.dirname(self._path(key, 0)))

    def adopt(self, key: str, fd: int, status: os.stat_result) -> Record:
        """A record for bytes that were copied here or put here by hand.

        It takes the metadata of the record with the same etag, if there is one. The open file keeps the
        inode's number ours; two readers that adopt at once write the same record.
        """
        etag = hash_file(fd)
        record = Record(
            etag=etag,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            metadata=self._metadata_of(key, etag),
        )
        self.write(key, status.st_ino, record)
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
        return f"{self._root}/{record_name(key, inode)}"
