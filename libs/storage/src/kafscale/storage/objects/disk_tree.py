"""The directory store's law on disk, in plain blocking calls that several processes may make at once.

The bytes are written to an unnamed file and the record to an attribute or a link (`disk_records`). Then one link or
rename makes both visible under the key. Create-if-absent is link(2), which never replaces. A replacement or a deletion
checks and acts under the key's lock. A visible object is complete. It is durable once `put` returned or `head` reported
it. A power cut may leave a file that is shorter than its record says. Such a file counts as absent and is moved aside.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.storage.objects.disk_direct import DirectWrites
from kafscale.storage.objects.disk_files import (
    NO_ROOM,
    names_follow_fsync,
    read_range,
    sync_directory,
    translated,
    write_body,
)
from kafscale.storage.objects.disk_records import AttributeRecords, Records, make_parents, open_records
from kafscale.storage.objects.locks import KeyLocks
from kafscale.storage.objects.port import (
    Buffer,
    Condition,
    IfAbsent,
    IfMatch,
    Metadata,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from kafscale.storage.objects.sidecar import STORE_DIR, Record, check_key, encode_metadata, record_line
from kafscale.storage.system import random_uuid

_RACES_MAX: Final = 16  # a race is lost only if another process changed the same key at that moment
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class _Found:
    """The file under a key, open, which pins its inode; and its record, None if the file is torn."""

    fd: int
    status: os.stat_result
    record: Record | None


@dataclass(slots=True)
class Staged:
    """Written bytes and their record, before they get their key; `source` is the path to link."""

    fd: int
    inode: int
    etag: str
    source: str
    shown: bool = False


class Stage:
    """The store's directory for files that have no key yet. If the file system supports it, they are unnamed and vanish
    with their process."""

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
        return f"{self._directory}/{random_uuid().hex}"

    def open(self) -> tuple[int, str]:
        """An empty file and its name; "" for an unnamed one."""
        if self.unnamed:
            return self._open_unnamed(), ""
        name = self.fresh_name()
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), name

    def _open_unnamed(self) -> int:
        return os.open(self._directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)


class DiskTree:
    """Objects are at `{root}/{key}`, the store's internal files below `{root}/.store`."""

    def __init__(
        self, root: str, *, lock_wait_s: float, attributes: bool = True, kept_bytes: int = 0
    ) -> None:
        self._root = root
        self._kept_bytes = kept_bytes
        self._meta = f"{root}/{STORE_DIR}/meta"
        self._torn = f"{root}/{STORE_DIR}/torn"
        self._locks = KeyLocks(f"{root}/{STORE_DIR}/locks", wait_s=lock_wait_s)
        self._preparing = threading.Lock()
        self._root_fd = -1
        self._ordered = False
        self._attributes = attributes
        self._records: Records = AttributeRecords()
        self._stage = Stage(f"{root}/{STORE_DIR}/stage")
        self._direct = DirectWrites(root)

    # -- opening ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Creates the store's internal directories and checks what the file system supports. Idempotent."""
        if self._root_fd >= 0:
            return
        with self._preparing, translated(""):
            if self._root_fd >= 0:
                return
            for name in ("meta", "stage", "torn", "locks"):
                os.makedirs(f"{self._root}/{STORE_DIR}/{name}", exist_ok=True)
            self._ordered = names_follow_fsync(self._root)
            self._records = open_records(
                f"{self._root}/{STORE_DIR}", attributes=self._attributes, ordered=self._ordered
            )
            self._stage.prepare()
            self._root_fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: str, body: Sequence[Buffer], condition: Condition, metadata: Metadata) -> str:
        check_key(key)
        described = encode_metadata(key, metadata)
        self.prepare()
        self._leave_room(key, body)
        with translated(key), self._staged(key, body, described) as staged:
            if isinstance(condition, IfAbsent):
                self._create(key, staged)
            else:
                self._replace(key, staged, condition)
            return staged.etag

    def _leave_room(self, key: str, body: Sequence[Buffer]) -> None:
        """Raises StoreFull. Others need the disk too: an etcd on it ends when there is no room for its log."""
        if not self._kept_bytes:
            return
        with translated(key):
            disk = os.statvfs(self._root_fd)
        free = disk.f_bavail * disk.f_frsize
        if free - sum(map(len, body)) < self._kept_bytes:
            raise StoreFull(key, f"{free} bytes are free, and {self._kept_bytes} are kept for others")

    @contextlib.contextmanager
    def _staged(self, key: str, body: Sequence[Buffer], described: str) -> Iterator[Staged]:
        fd, name = self._stage.open()
        try:
            staged = self._fill(fd, name, key, body, described)
            try:
                yield staged
            finally:
                if not staged.shown:
                    self._records.forget(key, staged.inode)
        finally:
            os.close(fd)
            if name:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)

    def _fill(self, fd: int, name: str, key: str, body: Sequence[Buffer], described: str) -> Staged:
        """Writes bytes and record into an open file; `described` is its encoded metadata."""
        etag, size = write_body(fd, body, self._direct)
        status = os.fstat(fd)
        self._records.write(key, fd, record_line(etag, size, status.st_mtime_ns, described))
        return Staged(fd, status.st_ino, etag, name or f"/proc/self/fd/{fd}")

    def waits_only_for_fsync(self, size: int) -> bool:
        """Whether the store is open and a create of so many bytes waits for the disk only in its last fsync."""
        in_attributes = isinstance(self._records, AttributeRecords)
        one_fsync = self._root_fd >= 0 and self._ordered and in_attributes and self._stage.unnamed
        return one_fsync and not self._direct.takes(size)

    def try_show(self, key: str, body: Sequence[Buffer], metadata: Metadata) -> Staged | None:
        """A create up to its fsync, in the page cache. None: this is not possible. Otherwise `settle` must follow."""
        assert self.waits_only_for_fsync(sum(map(len, body)))
        check_key(key)
        described = encode_metadata(key, metadata)
        self._leave_room(key, body)
        with translated(key):
            fd, _ = self._stage.open()
            try:
                staged = self._fill(fd, "", key, body, described)
                os.link(staged.source, self._path(key), src_dir_fd=self._root_fd, follow_symlinks=True)
            except (FileNotFoundError, FileExistsError):
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
        staged.shown = True
        return staged

    def settle(self, key: str, staged: Staged) -> str:
        """Makes the object durable, closes the file, and returns the etag."""
        with translated(key):
            try:
                self._make_durable(key, staged)
            finally:
                os.close(staged.fd)
        return staged.etag

    def _create(self, key: str, staged: Staged) -> None:
        if not self._ordered:
            self._sync_before_showing(key, staged)
        self._link_to_key(key, staged)
        staged.shown = True
        self._make_durable(key, staged)

    def _make_durable(self, key: str, staged: Staged) -> None:
        try:
            self._sync_after_showing(key, staged.fd)
        except OSError as error:
            self._take_back(key, staged.inode)
            staged.shown = False
            full = error.errno in NO_ROOM
            raise (StoreFull if full else StoreUnavailable)(key, f"fsync: {error.strerror}") from error

    def _link_to_key(self, key: str, staged: Staged) -> None:
        path = self._path(key)
        for _ in range(_RACES_MAX):
            try:
                # A source directory makes Python call linkat with AT_SYMLINK_FOLLOW, as /proc's links need.
                os.link(staged.source, path, src_dir_fd=self._root_fd, follow_symlinks=True)
            except FileNotFoundError:
                make_parents(path, self._root, ordered=self._ordered)
            except FileExistsError:
                if not self._move_torn_aside(key):
                    raise PreconditionFailed(key, "exists") from None
            else:
                return
        raise StoreUnavailable(key, "its directory kept vanishing")

    def _take_back(self, key: str, inode: int) -> None:
        """Hides an object whose fsync failed. A failure here makes the outcome unknown."""
        with self._locks.held(key):
            path = self._path(key)
            if os.stat(path, follow_symlinks=False).st_ino == inode:
                os.unlink(path)

    def _replace(self, key: str, staged: Staged, condition: IfMatch | None) -> None:
        os.fsync(staged.fd)  # detects a full disk while the old bytes still exist
        if not self._ordered:
            self._sync_before_showing(key, staged)
        path = self._path(key)
        name = self._stage.fresh_name()
        os.link(staged.source, name, src_dir_fd=self._root_fd, follow_symlinks=True)
        try:
            # The old file stays open until its record is gone: another writer could reuse a freed inode.
            with self._locks.held(key), self._opened(key) as old:
                _check(key, old, condition)
                make_parents(path, self._root, ordered=self._ordered)
                os.rename(name, path)
                staged.shown = True
                self._sync_after_showing(key, staged.fd)
                if old is not None:
                    self._records.forget(key, old.status.st_ino)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _sync_before_showing(self, key: str, staged: Staged) -> None:
        os.fsync(staged.fd)
        self._records.sync(key)

    def _sync_after_showing(self, key: str, fd: int) -> None:
        os.fsync(fd)
        if not self._ordered:
            sync_directory(os.path.dirname(self._path(key)))

    def delete(self, key: str, if_match: str | None) -> bool:
        check_key(key)
        self.prepare()
        path = self._path(key)
        with translated(key), self._locks.held(key), self._opened(key) as found:
            if found is None:
                return False
            if if_match is not None and (found.record is None or found.record.etag != if_match):
                raise PreconditionFailed(key, f"has another etag than {if_match}")
            os.unlink(path)
            sync_directory(os.path.dirname(path))
            self._records.forget(key, found.status.st_ino)
            self._remove_empty_parents(key)
            return True

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, key: str, if_match: str | None, start: int, end: int | None) -> bytes:
        check_key(key)
        self.prepare()
        with translated(key), self._opened(key) as found:
            if found is None or found.record is None:
                raise ObjectNotFound(key)
            if if_match is not None and found.record.etag != if_match:
                raise PreconditionFailed(key, f"has etag {found.record.etag}, not {if_match}")
            stop = found.record.size if end is None else min(end, found.record.size)
            return read_range(found.fd, start, stop)

    def head(self, key: str) -> ObjectInfo | None:
        check_key(key)
        self.prepare()
        with translated(key), self._opened(key) as found:
            if found is None or found.record is None:
                return None
            # A writer may have died, or still be, between the link and the fsync. The caller may take the answer
            # as proof that its earlier request was applied. So the object is made durable first.
            self._sync_after_showing(key, found.fd)
            if not self._ordered:
                self._records.sync(key)
            record = found.record
            return ObjectInfo(key=key, etag=record.etag, size=record.size, metadata=record.metadata)

    def scan(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Objects in key order. Directories sort as if their names ended in a slash, because their keys continue."""
        self.prepare()
        above = prefix.rpartition("/")[0]
        yield from self._scan_directory(above + "/" if above else "", prefix, start_after)

    def _scan_directory(self, above: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        try:
            with os.scandir(f"{self._root}/{above}") as entries:
                names = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            key = above + name
            if not name.endswith("/"):
                if key.startswith(prefix) and key > start_after and (info := self._listed(key)) is not None:
                    yield info
            elif key != f"{STORE_DIR}/" and _may_hold(key, prefix) and _may_hold_after(key, start_after):
                yield from self._scan_directory(key, prefix, start_after)

    def _listed(self, key: str) -> ObjectInfo | None:
        with translated(key), self._opened(key) as found:
            if found is None or found.record is None:
                return None
            return ObjectInfo(key=key, etag=found.record.etag, size=found.record.size)

    # -- objects and their records ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[_Found | None]:
        found = self._open(key)
        try:
            yield found
        finally:
            if found is not None:
                os.close(found.fd)

    def _open(self, key: str) -> _Found | None:
        path = self._path(key)
        for _ in range(_RACES_MAX):
            try:
                fd = os.open(path, _OPEN)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                found = self._inspect(key, path, fd)
            except BaseException:
                os.close(fd)
                raise
            if found is not None:
                return found
            os.close(fd)
        raise StoreUnavailable(key, "it kept changing while it was opened")

    def _inspect(self, key: str, path: str, fd: int) -> _Found | None:
        """None: the key now has other bytes, whose writer removed the record of these bytes."""
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise StoreRefused(key, "is a directory, not an object")
        record = self._records.read(key, fd)
        if record is not None and record.size != status.st_size:
            return _Found(fd, status, None)
        if record is not None and record.mtime_ns == status.st_mtime_ns:
            return _Found(fd, status, record)
        try:
            if os.stat(path, follow_symlinks=False).st_ino != status.st_ino:
                return None
        except FileNotFoundError:
            return None
        return _Found(fd, status, self._records.adopt(key, fd))

    def _move_torn_aside(self, key: str) -> bool:
        """Whether the key may be free now: a power cut tore its file, or the file is gone."""
        with self._locks.held(key), self._opened(key) as found:
            if found is None:
                return True
            if found.record is not None:
                return False
            os.rename(self._path(key), f"{self._torn}/{random_uuid().hex}")
            self._records.forget(key, found.status.st_ino)
            return True

    # -- paths -----------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _remove_empty_parents(self, key: str) -> None:
        """Removes empty directories of a deleted topic. rmdir refuses a directory that has files again."""
        for root in (self._root, self._meta):
            directory = key.rpartition("/")[0]
            while directory:
                try:
                    os.rmdir(f"{root}/{directory}")
                except OSError:
                    break
                directory = directory.rpartition("/")[0]


def _check(key: str, found: _Found | None, condition: IfMatch | None) -> None:
    """Checks the condition of a replacement, under the key's lock."""
    if condition is None:
        return
    if found is None or found.record is None:
        raise PreconditionFailed(key, "does not exist")
    if found.record.etag != condition.etag:
        raise PreconditionFailed(key, f"has etag {found.record.etag}, not {condition.etag}")


def _may_hold(directory: str, prefix: str) -> bool:
    return directory.startswith(prefix) or prefix.startswith(directory)


def _may_hold_after(directory: str, start_after: str) -> bool:
    return directory > start_after or start_after.startswith(directory)
