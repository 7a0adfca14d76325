"""Snapshots of etcd in the object store: taken, listed, read back and deleted.

The laws. A snapshot exists when its description does, which is written last; it names each part with size and SHA-256.
Before that, etcd's own checksum of the stream was right, and each part was read back and compared. One part is in
memory at a time. `expired` never names the newest snapshot, and deletion begins with the description, so no reader
finds half of a snapshot.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import DELETES_MAX, Doomed, IfAbsent, ObjectNotFound, ObjectStore, StoreError
from kafscale.storage.recovery_keys import (
    backup_folder,
    backups_prefix,
    deletion_marks_prefix,
    parse_backup_time_ms,
    parse_deletion_mark,
)

PART_BYTES: Final = 16 << 20
DESCRIPTION: Final = "snapshot.json"
DAY_MS: Final = 24 * 3_600_000
_PAGE: Final = 512
_CHECKSUM: Final = hashlib.sha256().digest_size


class BackupFailed(StoreError):
    """A snapshot is incomplete, damaged or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A snapshot in the store. `folder` ends in a slash."""

    folder: str
    taken_ms: int
    bytes: int
    parts: tuple[Part, ...]

    def part_key(self, number: int) -> str:
        return part_key(self.folder, number)


def part_key(folder: str, number: int) -> str:
    return f"{folder}part-{number:05d}"


async def take(etcd: EtcdClient, store: ObjectStore, keys: Keyspace, now_ms: int) -> Backup:
    """Raises BackupFailed, EtcdError and StoreError. What an error leaves is deleted by the next `delete_expired`."""
    folder = backup_folder(keys, now_ms)
    stream = _Checked()
    parts: list[Part] = []
    waiting: list[bytes] = []
    size = 0
    async for piece in etcd.snapshot():
        stream.feed(piece)
        waiting.append(piece)
        size += len(piece)
        if size >= PART_BYTES:
            parts.append(await _put_part(store, part_key(folder, len(parts)), waiting))
            waiting, size = [], 0
    if waiting:
        parts.append(await _put_part(store, part_key(folder, len(parts)), waiting))
    if not stream.is_complete:
        raise BackupFailed(folder, "etcd's snapshot ended early, or has a wrong checksum")
    backup = Backup(
        folder=folder, taken_ms=now_ms, bytes=sum(part.bytes for part in parts), parts=tuple(parts)
    )
    async for _ in read(store, backup):  # compares each part with its checksum
        pass
    text = json.dumps(asdict(backup), indent=1).encode()
    await store.put(folder + DESCRIPTION, [text], condition=IfAbsent())
    return backup


async def take_and_tidy(
    etcd: EtcdClient, store: ObjectStore, keys: Keyspace, keep: Keep, now_ms: int
) -> tuple[Backup, int]:
    """Takes a snapshot, makes a witness of etcd's history behind it, so that an etcd that is restored from it is
    recognized, and deletes old snapshots. Also returns how many.

    Raises WentBack if etcd went back: the snapshot is stored, and none is deleted, for an older one may be the last
    good one. Also raises as `take` and `delete_expired`.
    """
    made = await take(etcd, store, keys, now_ms)
    await History(etcd, keys, store).advance()
    return made, await delete_expired(store, keys, keep, now_ms)


async def _put_part(store: ObjectStore, key: str, pieces: Sequence[bytes]) -> Part:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    await store.put(key, pieces)
    return Part(bytes=sum(map(len, pieces)), sha256=digest.hexdigest())


class _Checked:
    """etcd sends its database file, a number of whole pages, and then the SHA-256 of it."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._last = b""
        self._size = 0

    def feed(self, piece: bytes) -> None:
        self._size += len(piece)
        held = self._last + piece
        self._digest.update(held[:-_CHECKSUM])
        self._last = held[-_CHECKSUM:]

    @property
    def is_complete(self) -> bool:
        return self._size % _PAGE == _CHECKSUM and self._last == self._digest.digest()


async def read(store: ObjectStore, backup: Backup) -> AsyncIterator[bytes]:
    """The parts in order. Raises BackupFailed for one that is gone or damaged, and StoreError."""
    for number, part in enumerate(backup.parts):
        key = backup.part_key(number)
        try:
            data = await store.get(key)
        except ObjectNotFound:
            raise BackupFailed(key, "is gone") from None
        if len(data) != part.bytes or hashlib.sha256(data).hexdigest() != part.sha256:
            raise BackupFailed(key, "is not what was stored")
        yield data


async def taken_times(store: ObjectStore, keys: Keyspace) -> list[int]:
    """The times of all snapshots in ms, oldest first. It reads names only."""
    prefix = backups_prefix(keys)
    names = [info.key.removeprefix(prefix) async for info in store.list(prefix)]
    folders = (name.removesuffix(f"/{DESCRIPTION}") for name in names if name.endswith(f"/{DESCRIPTION}"))
    return sorted(time for folder in folders if (time := parse_backup_time_ms(folder)) is not None)


async def described(store: ObjectStore, keys: Keyspace, taken_ms: int) -> Backup:
    """Raises BackupFailed if there is none of that second, or if its description cannot be read."""
    folder = backup_folder(keys, taken_ms)
    try:
        found = json.loads(await store.get(folder + DESCRIPTION))
        parts = tuple(Part(bytes=part["bytes"], sha256=part["sha256"]) for part in found["parts"])
        return Backup(folder=folder, taken_ms=found["taken_ms"], bytes=found["bytes"], parts=parts)
    except ObjectNotFound:
        raise BackupFailed(folder, "there is no such snapshot") from None
    except (ValueError, KeyError, TypeError) as broken:
        raise BackupFailed(folder + DESCRIPTION, f"cannot be read: {broken!r}") from broken


# -- what is kept ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The newest `count` snapshots are kept, and all that are younger than `age_ms`."""

    count: int
    age_ms: int


def expired(times_ms: Sequence[int], keep: Keep, now_ms: int) -> list[int]:
    """Oldest first. Pure. Never the newest one."""
    older = sorted(times_ms)[: -max(keep.count, 1)]
    return [time for time in older if time < now_ms - keep.age_ms]


async def delete_expired(store: ObjectStore, keys: Keyspace, keep: Keep, now_ms: int) -> int:
    """How many snapshots. Also deletes parts that an interrupted `take` left, and marks of deleted topics that no
    snapshot is old enough to contain. Raises StoreError."""
    prefix = backups_prefix(keys)
    objects: defaultdict[int, list[str]] = defaultdict(list)
    complete: set[int] = set()
    async for info in store.list(prefix):
        folder, _, name = info.key.removeprefix(prefix).partition("/")
        if (time := parse_backup_time_ms(folder)) is not None:
            objects[time].append(info.key)
            if name == DESCRIPTION:
                complete.add(time)
    gone = set(expired(sorted(complete), keep, now_ms))
    partial = {time for time in objects.keys() - complete if time < now_ms - DAY_MS}
    for time in gone | partial:
        found = sorted(objects[time], key=lambda key: not key.endswith(DESCRIPTION))
        await _delete(store, found[:1])
        await _delete(store, found[1:])
    await _delete_marks(store, keys, min(complete - gone, default=now_ms))
    return len(gone)


async def _delete_marks(store: ObjectStore, keys: Keyspace, oldest_ms: int) -> None:
    """A mark's day may have begun a day before the deletion, and slices of the topic remain for hours."""
    marks = [
        (info.key, parse_deletion_mark(keys, info.key))
        async for info in store.list(deletion_marks_prefix(keys))
    ]
    await _delete(
        store, [key for key, mark in marks if mark is not None and mark[1] < oldest_ms - 2 * DAY_MS]
    )


async def _delete(store: ObjectStore, keys: Sequence[str]) -> None:
    for at in range(0, len(keys), DELETES_MAX):
        for outcome in await store.delete_many([Doomed(key) for key in keys[at : at + DELETES_MAX]]):
            if isinstance(outcome, StoreError):
                raise outcome
