"""Snapshots of a real etcd, their checks, and which of them are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage import backups
from kafscale.storage.backups import (
    DAY_MS,
    DESCRIPTION,
    Backup,
    BackupFailed,
    Keep,
    delete_expired,
    described,
    expired,
    read,
    take,
    take_and_tidy,
    taken_times,
)
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack, witnesses_prefix
from kafscale.storage.keys import Keyspace, TopicId, prefix_end
from kafscale.storage.objects import Doomed, MemoryStore, Outcome, StoreUnavailable
from kafscale.storage.recovery_keys import backup_folder, deletion_mark

NOW_MS = 1_800_000_000_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "PART_BYTES", 10_000)


async def names(store: MemoryStore) -> list[str]:
    return [info.key async for info in store.list("")]


async def stored(etcd: EtcdClient, store: MemoryStore, keys: Keyspace, at_ms: int = NOW_MS) -> Backup:
    await etcd.put(keys.root() + b"t/large", b"x" * 200_000)
    return await take(etcd, store, keys, at_ms)


async def test_a_snapshot_is_stored_in_parts_and_read_back(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore
) -> None:
    made = await stored(etcd, store, keyspace)
    assert len(made.parts) > 3
    assert await taken_times(store, keyspace) == [NOW_MS]
    assert await described(store, keyspace, NOW_MS) == made
    data = b"".join([part async for part in read(store, made)])
    assert len(data) == made.bytes
    assert b"x" * 200_000 in data
    assert all(key.startswith(f".kafscale-backup/{keyspace.namespace}/") for key in await names(store))


async def test_a_stream_that_ends_early_is_no_snapshot(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [piece async for piece in etcd.snapshot()]

    for damaged in (pieces[:-1], [*pieces[:-1], pieces[-1][:-1]], [b"\0" * len(pieces[0]), *pieces[1:]]):

        async def broken(left: list[bytes] = damaged) -> AsyncIterator[bytes]:
            for piece in left:
                yield piece

        monkeypatch.setattr(etcd, "snapshot", broken)
        with pytest.raises(BackupFailed, match="ended early"):
            await take(etcd, store, keyspace, NOW_MS)
    assert await taken_times(store, keyspace) == []
    assert not any(key.endswith(DESCRIPTION) for key in await names(store))


async def test_a_part_that_is_gone_or_changed_is_found(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore
) -> None:
    made = await stored(etcd, store, keyspace)
    data = await store.get(made.part_key(1))
    await store.put(made.part_key(1), [data[:-1] + b"?"])
    with pytest.raises(BackupFailed, match="part-00001: is not what was stored"):
        [part async for part in read(store, made)]
    await store.delete(made.part_key(1))
    with pytest.raises(BackupFailed, match="part-00001: is gone"):
        [part async for part in read(store, made)]


async def test_a_part_that_the_store_lost_at_once_fails_the_backup(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def emptied(key: str, **_how: object) -> bytes:
        return b""

    monkeypatch.setattr(store, "get", emptied)
    with pytest.raises(BackupFailed, match="part-00000: is not what was stored"):
        await stored(etcd, store, keyspace)
    assert await taken_times(store, keyspace) == []


async def test_old_snapshots_and_what_interrupted_ones_left_are_deleted(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore
) -> None:
    for day in range(5):
        await stored(etcd, store, keyspace, NOW_MS + day * DAY_MS)
    left = backup_folder(keyspace, NOW_MS + DAY_MS + 5_000) + "part-00000"
    begun = backup_folder(keyspace, NOW_MS + 4 * DAY_MS + 5_000) + "part-00000"
    for key in (left, begun):
        await store.put(key, [b"x"])
    keep = Keep(count=2, age_ms=int(2.5 * DAY_MS))
    assert await delete_expired(store, keyspace, keep, NOW_MS + 5 * DAY_MS) == 3
    kept = await taken_times(store, keyspace)
    assert kept == [NOW_MS + day * DAY_MS for day in (3, 4)]
    rest = await names(store)
    assert left not in rest
    assert begun in rest
    for time_ms in kept:
        assert [part async for part in read(store, await described(store, keyspace, time_ms))]
    folders = {key.rsplit("/", 1)[0] for key in rest}
    assert len(folders) == 3


async def test_a_deletion_that_ends_early_leaves_no_half_of_a_snapshot(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    class Refusing(MemoryStore):
        async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
            done = await super().delete_many(doomed[:1])
            return [*done, *(StoreUnavailable(each.key, "503") for each in doomed[1:])]

    store = Refusing()
    for day in range(2):
        await stored(etcd, store, keyspace, NOW_MS + day * DAY_MS)
    with pytest.raises(StoreUnavailable):
        await delete_expired(store, keyspace, Keep(count=1, age_ms=0), NOW_MS + 3 * DAY_MS)
    assert await taken_times(store, keyspace) == [NOW_MS + DAY_MS]


async def test_a_mark_of_a_deleted_topic_lives_as_long_as_snapshots_that_have_the_topic(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore
) -> None:
    await stored(etcd, store, keyspace)
    topics = [TopicId(bytes([n]) * 16) for n in range(2)]
    old = deletion_mark(keyspace, topics[0], NOW_MS - 4 * DAY_MS)
    needed = deletion_mark(keyspace, topics[1], NOW_MS - DAY_MS)
    for key in (old, needed):
        await store.put(key, [b"name"])
    assert await delete_expired(store, keyspace, Keep(count=1, age_ms=0), NOW_MS + DAY_MS) == 0
    rest = await names(store)
    assert (old in rest, needed in rest) == (False, True)


@given(
    st.lists(st.integers(min_value=0, max_value=10**12), unique=True),
    st.integers(min_value=1, max_value=10),
    st.integers(min_value=0, max_value=10**12),
    st.integers(min_value=0, max_value=10**12),
)
def test_the_newest_and_the_young_are_kept(times: list[int], count: int, age_ms: int, now_ms: int) -> None:
    gone = expired(times, Keep(count=count, age_ms=age_ms), now_ms)
    kept = set(times) - set(gone)
    assert set(sorted(times)[-count:]) <= kept
    assert all(time in kept for time in times if time >= now_ms - age_ms)
    assert len(kept) <= max(count, sum(time >= now_ms - age_ms for time in times))
    assert gone == sorted(gone)


async def test_a_snapshot_is_older_than_a_witness_of_the_history(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore
) -> None:
    """So an etcd that is restored from it is recognized, however soon."""
    history = History(etcd, keyspace, store)
    before = await history.verify()
    made, gone = await take_and_tidy(etcd, store, keyspace, Keep(count=1, age_ms=0), NOW_MS)
    data = b"".join([part async for part in read(store, made)])
    after = await history.verify()
    assert (before < after, gone) == (True, 0)
    assert str(before).encode() in data
    assert str(after).encode() not in data


async def test_no_snapshot_is_deleted_when_etcd_went_back(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore
) -> None:
    keep = Keep(count=1, age_ms=0)
    await take_and_tidy(etcd, store, keyspace, keep, NOW_MS)
    await etcd.delete(witnesses_prefix(keyspace), range_end=prefix_end(witnesses_prefix(keyspace)))
    with pytest.raises(WentBack):
        await take_and_tidy(etcd, store, keyspace, keep, NOW_MS + DAY_MS)
    assert await taken_times(store, keyspace) == [NOW_MS, NOW_MS + DAY_MS]
