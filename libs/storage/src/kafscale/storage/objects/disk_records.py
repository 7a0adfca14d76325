"""Where the directory store keeps the record of an object: its etag and metadata (see `sidecar`).

The record is in an extended attribute of the file, which costs almost nothing. If the file system has no extended
attributes, it is the target of a symbolic link outside of the objects' tree, named after the key and the inode of the
bytes. Both are made before the bytes get their key, so one link or rename shows bytes and record together. Both
are entries of the file system's journal, so they need no separate write or fsync.

Every process follows the layout of the store, kept in one file since its creation. It names the place of the records.
If they are in extended attributes, the file has one itself. If that is missing, the tree was copied without extended
attributes, and the store is refused, because its metadata is lost.
"""

import contextlib
import errno
import os
from typing import Final, Protocol

from kafscale.storage.objects.disk_files import hash_file, sync_directory
from kafscale.storage.objects.port import Metadata, StoreRefused, StoreUnavailable
from kafscale.storage.objects.sidecar import Record, decode_record, encode_record
from kafscale.storage.system import random_uuid

ATTRIBUTE: Final = "user.kafscale"
_RACES_MAX: Final = 16  # a race is lost only if another process changed the same directory at that moment


class Records(Protocol):
    """The record of the open file `fd`, which has, or will have, this `key`."""

    def read(self, key: str, fd: int) -> Record | None:
        """None: the file has no record, for example because somebody copied it there by hand."""

    def write(self, key: str, fd: int, line: str) -> None:
        """Writes or replaces the record. The caller holds the file open, so no other file can get its inode."""

    def forget(self, key: str, inode: int) -> None:
        """Removes the record after the inode has lost the key."""

    def sync(self, key: str) -> None:
        """Makes the record durable before the bytes become visible, if an fsync of the file does not do that."""

    def adopt(self, key: str, fd: int) -> Record:
        """Makes a record for bytes that were copied here without one."""


class AttributeRecords:
    """Records in the file's extended attributes."""

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
        """The record is deleted with the file."""

    def sync(self, key: str) -> None:
        """An fsync of the file includes the attribute."""

    def adopt(self, key: str, fd: int) -> Record:
        record = _fresh_record(fd, hash_file(fd), {})
        self.write(key, fd, encode_record(record))
        return record


class LinkRecords:
    """Records in links below `root`; `ordered` as in `disk_files`."""

    def __init__(self, root: str, *, ordered: bool) -> None:
        self._root = root
        self._ordered = ordered

    def read(self, key: str, fd: int) -> Record | None:
        try:
            return decode_record(os.readlink(self._path(key, os.fstat(fd).st_ino)))
        except FileNotFoundError:
            return None

    def write(self, key: str, fd: int, line: str) -> None:
        """An existing link belongs to an earlier file with the same inode number."""
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
        """Takes the metadata from the link with the same etag: a copy of the tree has other inodes, but all
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
    """Creates the directories above a path, and syncs them if the file system needs it.

    A concurrent delete may remove an empty one. The caller then finds it missing and repeats the call.
    """
    directory = os.path.dirname(path)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.makedirs(directory, exist_ok=True)
    if not ordered:
        while directory != root:
            directory = os.path.dirname(directory)
            sync_directory(directory)


_IN_ATTRIBUTES: Final = b"records in extended attributes\n"
_IN_LINKS: Final = b"records in links\n"


def open_records(store_dir: str, *, attributes: bool, ordered: bool) -> Records:
    """Reads the layout of the store, or creates it: in attributes if they are wanted and supported."""
    path = f"{store_dir}/layout"
    if not os.path.exists(path):
        _lay_out(store_dir, path, attributes=attributes)
    with open(path, "rb") as file:
        layout = file.read()
        if layout == _IN_LINKS:
            return LinkRecords(f"{store_dir}/meta", ordered=ordered)
        if layout != _IN_ATTRIBUTES:
            raise StoreRefused("", f"{path} is of another version: {layout[:80]!r}")
        if not _has_attribute(file.fileno()):
            raise StoreRefused(
                "",
                f"{store_dir} was copied without extended attributes, which hold the objects' metadata; "
                "copy it again with cp -a, rsync -aX or tar --xattrs",
            )
        return AttributeRecords()


def _lay_out(store_dir: str, path: str, *, attributes: bool) -> None:
    name = f"{store_dir}/stage/{random_uuid().hex}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, _IN_ATTRIBUTES if attributes and _set_attribute(fd) else _IN_LINKS)
        os.fsync(fd)
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(name, path)
    finally:
        os.close(fd)
        os.unlink(name)


def _set_attribute(fd: int) -> bool:
    try:
        os.setxattr(fd, ATTRIBUTE, b"1")
    except OSError:
        return False
    return True


def _has_attribute(fd: int) -> bool:
    try:
        return os.getxattr(fd, ATTRIBUTE) == b"1"
    except OSError:
        return False
