"""A collection of orphans of any size: in bounded memory, and another goes on where it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.catalog import Lake
from kafscale.lake.resume import Reached, read_place
from kafscale.lake.retention import orphans, unreferenced
from kafscale.lake.retention.orphans import JOB, Orphans
from kafscale.log.heads import decode_head, encode_head, encode_meta
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.storage.etcd.client import Txn
from kafscale.storage.job_runs import JobPlace
from kafscale.storage.keys import TopicId, index_beside
from kafscale.storage.objects import Doomed, ObjectInfo, Outcome
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, records

from .replaced import Hooked, rename_manifest
from .shop import Shop

PER_SEGMENT = 5


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def built(shop: Shop, name: str = "t", segments: int = 40) -> LogBuilder:
    log = await shop.topic(name)
    for number in range(segments):
        await log.append(records(PER_SEGMENT))
        if number % 8 == 7:
            await log.checkpoint(keep=2)
    return log


async def litter(shop: Shop, log: LogBuilder, count: int) -> set[str]:
    """Beside every segment, and of every kind that has a name of its own."""
    keys, topic = shop.keys, log.topic
    found = set()
    for number in range(count):
        compacted = keys.compacted_key(topic.topic_id, 0, number * PER_SEGMENT, f"left{number}")
        found |= {
            keys.segment_key(topic.name, 0, number * PER_SEGMENT + 1),
            keys.manifest_key(topic.topic_id, 0, number, "left"),
            compacted,
            compacted.replace(".kfs", ".index"),
        }
    for key in found:
        await shop.store.put(key, [b"left"])
    return found


class Watched:
    """A store that calls back with every object that it lists, and before every deletion."""

    def __init__(self, shop: Shop) -> None:
        self._store = shop.store
        self.listed: list[str] = []
        self.most = 0
        self.run: Orphans | None = None
        self.stops_at = ""
        self.stopped = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def look(self) -> None:
        if self.run is not None:
            self.most = max(self.most, self.run.found.count - self.run.found.fates.total())

    async def list(self, prefix: str, **how: Any) -> AsyncIterator[ObjectInfo]:
        async for info in self._store.list(prefix, **how):
            self.look()
            if info.key == self.stops_at:
                self.stopped.set()
                await asyncio.Event().wait()
            self.listed.append(info.key)
            yield info

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        self.look()
        return await self._store.delete_many(doomed)


def watched(shop: Shop) -> tuple[Watched, Lake]:
    store: Any = Watched(shop)
    return store, Lake(shop.etcd, shop.keys, store)


async def test_what_is_found_is_deleted_before_more_is_held_than_the_setting_says(shop: Shop) -> None:
    logs = [await built(shop, name) for name in ("a", "b")]
    kept = shop.store.names()
    left = [await litter(shop, log, 40) for log in logs]
    store, lake = watched(shop)
    store.run = Orphans(lake, grace_s=0.02, objects_max=32)
    found = await store.run.collect()
    assert shop.store.names() == kept
    assert found.count == sum(map(len, left)) == 320
    assert 0 < store.most <= 32, store.most
    told = await Orphans(lake, grace_s=0, named_max=3).collect(dry=True)
    assert (told.count, told.orphans) == (0, [])


async def test_orphans_are_told_by_name_up_to_a_bound_and_counted_beyond(shop: Shop) -> None:
    log = await built(shop)
    await litter(shop, log, 10)
    found = await Orphans(shop.lake(), grace_s=0, named_max=3).collect(dry=True)
    assert (found.count, len(found.orphans)) == (40, 3)


async def test_a_round_that_is_cut_off_goes_on_behind_the_object_that_it_came_to(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreferenced, "LISTED_MAX", 10)
    monkeypatch.setattr(orphans, "PLACE_EVERY_S", 0.0)
    monkeypatch.setattr(orphans, "LOGS_AT_ONCE", 1)
    logs = {name: await built(shop, name) for name in ("a", "b", "c")}
    kept = shop.store.names()
    for log in logs.values():
        await litter(shop, log, 40)
    store, lake = watched(shop)
    store.stops_at = shop.keys.segment_key("b", 0, 20 * PER_SEGMENT)
    cut_off = asyncio.create_task(Orphans(lake, grace_s=0, remembers=True).collect())
    async with asyncio.timeout(20):
        await store.stopped.wait()
    cut_off.cancel()
    await asyncio.gather(cut_off, return_exceptions=True)
    place = await read_place(lake, JOB)
    assert place is not None
    assert shop.keys.segment_key("b", 0, 0) < place.key < store.stops_at
    store, lake = watched(shop)
    await Orphans(lake, grace_s=0, remembers=True).collect()
    of_b = [key for key in store.listed if key.startswith(f"{shop.keys.namespace}/b/")]
    assert min(of_b) > place.key, "it begins behind the object, not at the log's first one"
    assert shop.store.names() == kept
    assert await read_place(lake, JOB) == JobPlace(topic="a", partition=0), "it went round once"


async def test_manifests_that_are_replaced_under_a_look_cost_a_look_at_meta(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await built(shop)
    left = await litter(shop, log, 40)
    kept = shop.store.names() - left
    replaced: set[str] = set()
    real = ManifestBlocks.parts

    async def parts(self: ManifestBlocks, key: str) -> Any:
        if key not in replaced and len(replaced) < 5:
            await rename_manifest(shop, log, key, replaced)
        async for part in real(self, key):
            yield part

    monkeypatch.setattr(ManifestBlocks, "parts", parts)
    await Orphans(shop.lake(), grace_s=0).collect()
    assert len(replaced) == 5
    names = shop.store.names()
    assert names & left == set()
    assert {key for key in kept if key.endswith((".kfs", ".index"))} <= names


async def test_a_meta_that_lists_too_little_gives_no_segment_away(shop: Shop) -> None:
    """One that is gone, or an old one that was put back: what it does not list is committed all the same."""
    log = await built(shop)
    names = shop.store.names()
    chunk = log.meta.chunks[-1]
    old = replace(log.meta, chunks=log.meta.chunks[:-1], manifest_end=chunk.first)
    for meta in (encode_meta(old), None):
        if meta is None:
            await shop.etcd.delete(shop.keys.meta(log.topic.topic_id, 0))
        else:
            await shop.etcd.put(shop.keys.meta(log.topic.topic_id, 0), meta)
        found = await Orphans(shop.lake(), grace_s=0).collect()
        assert list(found.missed) == ["t/0"]
        assert shop.store.names() == names


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", ""])), max_size=20))
def test_a_round_has_reached_what_all_before_is_done(steps: list[tuple[int, str]]) -> None:
    topic = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=5)
    reached = Reached([(topic, number) for number in range(5)])
    known: dict[int, str] = {}
    for number, key in steps:
        if known.get(number) == "":
            continue
        known[number] = key
        reached.done((topic, number), key)
        through = next((each for each in range(5) if known.get(each) != ""), 5)
        if through < 5 and through in known:
            assert reached.place == JobPlace(topic="t", partition=through, key=known[through])
        elif through:
            assert reached.place == JobPlace(topic="t", partition=through - 1)
        else:
            assert reached.place is None


async def test_what_compaction_publishes_under_the_look_is_named(shop: Shop) -> None:
    """It was listed and not named, and is named when meta is raised."""
    log = await built(shop)
    seg = log.segments[3]
    key = shop.keys.compacted_key(log.topic.topic_id, 0, seg.base, "u")
    etag = await shop.store.put(key, [await shop.store.get(log.segment_key(seg))])
    index = index_beside(key)
    await shop.store.put(index, [b"index"])
    heads: list[object] = []

    async def publish(ranges: object) -> bool:
        """Between the first look at the log and the second."""
        heads.append(ranges)
        if len(heads) == 2:
            (ref,) = [ref for ref in log.meta.chunks if ref.first <= seg.base <= ref.last]
            await rename_manifest(shop, log, ref.key, set(), replace(seg, key=key, etag=etag))
        return len(heads) == 2

    etcd: Any = Hooked(shop.etcd, "ranges", publish)
    found = await Orphans(Lake(etcd, shop.keys, shop.store), grace_s=0).collect()
    assert len(heads) == 2
    assert {key, index}.isdisjoint(orphan.key for orphan in found.orphans)
    assert {key, index} <= shop.store.names()


async def test_a_snapshot_that_the_head_names_by_the_fence_stays(shop: Shop) -> None:
    """A checkpoint may name one and leave meta as it is."""
    log = await built(shop)
    key = shop.keys.snapshot_key(log.topic.topic_id, 0, 5, "new")
    await shop.store.put(key, [b"snapshot"])
    head_key = shop.keys.head(log.topic.topic_id, 0)

    async def checkpoint(txn: Txn) -> bool:
        kv = await shop.etcd.get(head_key)
        assert kv is not None
        await shop.etcd.put(head_key, encode_head(replace(decode_head(kv.value), snap_key=key)))
        return True

    etcd: Any = Hooked(shop.etcd, "txn", checkpoint)
    await Orphans(Lake(etcd, shop.keys, shop.store), grace_s=0).collect()
    assert key in shop.store.names()
