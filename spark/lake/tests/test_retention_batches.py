"""Retention of more than one run can do: what a deadline leaves done is done, and the next run goes on there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.catalog import Lake, Outline, read_lake
from kafscale.lake.resume import behind, read_place
from kafscale.lake.retention import apply
from kafscale.lake.retention.apply import JOB, Report, Retention
from kafscale.lake.retention.orphans import Orphans
from kafscale.lake.retention.plan import ExpiryRules, Limits, Whole, plan, start_after
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.manifests import decode_manifest, seg_of
from kafscale.storage.job_runs import JobPlace
from kafscale.storage.keys import TopicId
from kafscale.storage.objects import Doomed, Outcome, StoreUnavailable
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import records

from .shop import Shop
from .test_retention import LIMITS, NOW, SHAPES, log_of
from .test_retention_apply import all_is_done, build, meta_of

TOPICS = 6


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def expired(shop: Shop, topics: int = TOPICS, segments: int = 3) -> None:
    for number in range(topics):
        log = await shop.topic(f"t{number}", retention_ms="1000")
        for each in range(segments):
            await log.append(records(5, timestamp=100 + each))
        await log.checkpoint()


def retention(lake: Lake, **how: Any) -> Retention:
    return Retention(lake, **({"grace_s": 0.0, "now_ms": lambda: 1_000_000, "remembers": True} | how))


def topics_left(shop: Shop) -> set[str]:
    return {key.split("/")[1] for key in shop.store.names() if key.endswith(".kfs")}


class Slow:
    """A store that stops for good with the deletion of this topic's objects."""

    def __init__(self, shop: Shop, at: str) -> None:
        self._store = shop.store
        self._at = at
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        if any(f"/{self._at}/" in each.key for each in doomed):
            self.reached.set()
            await asyncio.Event().wait()
        return await self._store.delete_many(doomed)


async def test_a_run_that_is_cut_off_has_deleted_and_the_next_goes_on_behind(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "LOGS_PER_BATCH", 2)
    await expired(shop)
    store: Any = Slow(shop, "t2")
    run = asyncio.create_task(retention(Lake(shop.etcd, shop.keys, store)).run())
    async with asyncio.timeout(20):
        await store.reached.wait()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert topics_left(shop) >= {"t2", "t4", "t5"}
    assert topics_left(shop).isdisjoint({"t0", "t1"}), (
        "what is deleted does not wait for what was not looked at"
    )
    assert await shop.etcd.get(shop.keys.meta(shop.logs["t5"].topic.topic_id, 0)) is not None
    assert (await meta_of(shop, shop.logs["t5"])).log_start == 0
    assert await read_place(shop.lake(), JOB) == JobPlace(topic="t1", partition=0)
    order: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(shop.store, name)

        async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
            order.extend(each.key.split("/")[1] for each in doomed if each.key.endswith(".kfs"))
            return await shop.store.delete_many(doomed)

    watched: Any = Watched()
    await retention(Lake(shop.etcd, shop.keys, watched)).run()
    assert set(order) <= {"t2", "t3", "t4", "t5"}, "what was through comes last, and has nothing left"
    assert order[0] in ("t2", "t3")
    assert topics_left(shop) == set()
    assert await read_place(shop.lake(), JOB) == JobPlace(topic="t1", partition=0), "it went round once"


async def test_the_reads_under_way_have_their_grace_in_every_batch(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batches are looked at meanwhile, so a grace is not waited for once for each."""
    monkeypatch.setattr(apply, "LOGS_PER_BATCH", 1)
    await expired(shop)
    clock = [0.0]
    moved_s: dict[str, float] = {}
    deleted_s: dict[str, float] = {}

    async def sleep(delay_s: float) -> None:
        clock[0] += max(0.0, delay_s)

    class Etcd:
        def __getattr__(self, name: str) -> Any:
            return getattr(shop.etcd, name)

        async def txn(self, txn: Any) -> Any:
            clock[0] += 1.0
            for name, log in shop.logs.items():
                if log.topic.topic_id.hex() in str(txn):
                    moved_s.setdefault(name, clock[0])
            return await shop.etcd.txn(txn)

    class Store:
        def __getattr__(self, name: str) -> Any:
            return getattr(shop.store, name)

        async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
            for each in doomed:
                deleted_s.setdefault(each.key.split("/")[1], clock[0])
            return await shop.store.delete_many(doomed)

    monkeypatch.setattr(apply.asyncio, "sleep", sleep)
    monkeypatch.setattr(apply, "monotonic_s", lambda: clock[0])
    etcd: Any = Etcd()
    store: Any = Store()
    await retention(Lake(etcd, shop.keys, store), grace_s=300.0).run()
    assert set(deleted_s) >= set(moved_s) == set(shop.logs)
    assert all(deleted_s[name] - moved_s[name] >= 300 for name in moved_s)
    assert clock[0] < 2 * 300


async def test_a_log_is_deleted_portion_by_portion_and_each_is_in_the_books(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "PORTION", 2)
    await build(shop)
    await Retention(shop.lake(), grace_s=0, now_ms=lambda: 100_000).run()
    await all_is_done(shop)


class Refusing:
    def __init__(self, shop: Shop) -> None:
        self._store = shop.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        return [StoreUnavailable(each.key, "503") for each in doomed]


async def test_a_run_that_deletes_nothing_of_what_it_found_stands_still(shop: Shop) -> None:
    await expired(shop)
    store: Any = Refusing(shop)
    lake = Lake(shop.etcd, shop.keys, store)
    assert not (await retention(lake).run()).stands_still, "log starts moved"
    assert (await retention(lake).run()).stands_still
    assert not (await retention(shop.lake()).run()).stands_still
    assert not (await retention(shop.lake()).run()).stands_still, "nothing is left to do"
    assert Report(logs=2, missed={"a/0": "", "b/0": ""}).stands_still
    assert not Report(logs=3, missed={"a/0": "", "b/0": ""}).stands_still


async def test_a_collection_that_deletes_nothing_of_what_it_found_stands_still(shop: Shop) -> None:
    await expired(shop)
    for number in range(3):
        await shop.store.put(shop.keys.segment_key("t0", 0, number * 5 + 1), [b"orphan"])
    store: Any = Refusing(shop)
    assert (await Orphans(Lake(shop.etcd, shop.keys, store), grace_s=0).collect()).stands_still
    assert not (await Orphans(shop.lake(), grace_s=0).collect()).stands_still
    assert not (await Orphans(shop.lake(), grace_s=0).collect()).stands_still, "nothing is left"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), unique=True), st.data())
def test_a_run_goes_round_once_from_behind_the_last_place(names: list[tuple[str, int]], data: Any) -> None:
    places = [(Topic(name=name, topic_id=TopicId(bytes(16)), partitions=4), part) for name, part in names]
    last = data.draw(st.none() | st.tuples(st.sampled_from("abc"), st.integers(0, 3)))
    reached = None if last is None else JobPlace(topic=last[0], partition=last[1])
    ordered = [(topic.name, part) for topic, part in behind(places, reached)]
    assert sorted(ordered) == sorted(names)
    later = [place for place in ordered if last is not None and place > last]
    assert ordered[: len(later)] == sorted(later)


@given(SHAPES, LIMITS)
def test_a_walk_goes_as_far_as_the_plan_of_the_whole_log(shapes: Any, limits: Limits) -> None:
    log = log_of(shapes, limits)
    whole = Whole(
        bytes=sum(seg.size for seg in log.segments),
        committed_ms=max((seg.created_ms for seg in log.segments), default=0),
    )
    walk = ExpiryRules(log.topic, whole, NOW)
    start = log.start
    for seg in log.segments:
        if walk.rule_of(seg) is None:
            break
        start = seg.end
    assert start == start_after(log, plan([log], NOW))


async def test_a_manifest_in_parts_is_the_manifest(shop: Shop) -> None:
    log = await shop.topic("t")
    for each in range(9):
        await log.append(records(5, timestamp=100 + each))
    await log.claim(4)
    ref = await log.checkpoint()
    whole = decode_manifest(await shop.store.get(ref.key))
    manifests = ManifestBlocks(shop.store, block_bytes=37)
    parts = [part async for part in manifests.parts(ref.key)]
    assert tuple(seg for part in parts for seg in part.segments()) == whole.segments
    assert len(parts) > 9
    outline = Outline(topic=log.topic, partition=0, meta=log.meta)
    some = [seg_of(line) async for line in manifests.lines(outline.meta.chunks, 12, 31)]
    assert some == [seg for seg in whole.segments if seg.end > 12 and seg.base < 31]
    digest = await manifests.digest(ref.key)
    assert (digest.count, digest.bytes) == (9, sum(seg.size for seg in whole.segments))
    await shop.store.delete(ref.key)
    assert await manifests.digest(ref.key) == digest, "it never changes, so it is not read again"


async def test_a_meta_whose_head_is_gone_lists_nothing(shop: Shop) -> None:
    """A deletion of the topic has begun: the manifests that the meta names may be gone too."""
    log = await shop.topic("t")
    await log.append(records(5))
    await log.append(records(5))
    await log.checkpoint(keep=1)
    await shop.store.delete(log.meta.chunks[0].key)
    await shop.etcd.delete(shop.keys.head(log.topic.topic_id, 0))
    (found,) = await read_lake(shop.lake())
    assert (found.start, found.end, found.segments, found.meta_revision) == (0, 0, (), 0)
