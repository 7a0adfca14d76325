"""How far a log is swept, by what the store has said of its objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from kafscale.lake.catalog import read_outline
from kafscale.lake.retention import sweep
from kafscale.lake.retention.apply import Retention
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.log_starts import Cut
from kafscale.lake.retention.sweep import Gone, first_gone, known_epochs
from kafscale.log.heads import EpochStart, Seg, decode_meta
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.manifests import decode_manifest
from kafscale.log.segments import segments_from
from kafscale.testkit.logbuilder import LogBuilder, records
from kafscale.testkit.objects import Fault, FaultyStore, scripted

from .shop import Shop
from .test_retention import SEG

SEGMENTS = tuple(replace(SEG, base=10 * number, etag=str(number)) for number in range(4))


@pytest.mark.parametrize(
    ("swept", "gone", "start", "end"),
    [
        (0, {0, 1}, 20, 20),
        (0, {0, 1}, 40, 20),
        (0, {0, 1, 2}, 20, 20),
        (0, {1}, 20, 0),
        (0, set(), 20, 0),
        (10, {1}, 20, 20),
        (10, set(), 20, 10),
        (0, {0, 1, 2, 3}, 40, 40),
    ],
)
async def test_a_log_is_swept_up_to_the_first_object_that_may_stand(
    swept: int, gone: set[int], start: int, end: int
) -> None:
    named = {(10 * number, str(number)) for number in gone}
    assert await swept_end(swept, named, start) == end


async def swept_end(swept: int, gone: Gone, start: int) -> int:
    async def listed() -> AsyncIterator[Seg]:
        for seg in SEGMENTS[swept // 10 :]:
            yield seg

    found = await first_gone(listed(), gone, start)
    return found[-1].end if found else swept


async def test_another_object_of_the_same_offsets_is_not_the_one_that_is_gone() -> None:
    assert await swept_end(0, {(0, "another")}, 40) == 0


def test_an_epoch_starts_where_it_was_first_seen() -> None:
    first = (EpochStart(epoch=1, start=0), EpochStart(epoch=3, start=7))
    second = (EpochStart(epoch=3, start=9), EpochStart(epoch=4, start=12))
    assert [(start.epoch, start.start) for start in known_epochs([first, second])] == [
        (1, 0),
        (3, 7),
        (4, 12),
    ]


async def test_a_deletion_that_failed_keeps_nothing_of_what_follows_it_in_memory() -> None:
    """One of the segments before the portion still exists: the sweep ends there, however many lie behind it."""
    shop = Shop()
    log = await shop.topic("t")
    for _ in range(20):
        await log.append(records(5))
    await log.checkpoint()
    outline = await read_outline(shop.lake(), log.topic, 0)
    gone = {(seg.base, seg.etag) for seg in log.segments[:16]}
    for stands, held in ((None, 16), (10, 10), (0, 0)):
        rest = gone - {(log.segments[stands].base, log.segments[stands].etag)} if stands is not None else gone
        looked: list[Seg] = []

        async def read(looked: list[Seg] = looked) -> AsyncIterator[Seg]:
            async for seg in segments_from(ManifestBlocks(shop.store), outline, 0):
                looked.append(seg)
                yield seg

        assert await sweep.first_gone(read(), rest, 80) == log.segments[:held]
        assert len(looked) == held + 1, "it reads no farther"


async def test_the_epochs_of_all_chunks_that_go_are_kept() -> None:
    shop = Shop()
    log = await shop.topic("t")
    for epoch in (2, 3, 4):
        await log.claim(epoch)
        await log.append(records(5))
        await log.checkpoint()
    for upto in (1, 2):
        some = log.segments[:upto] if upto == 1 else log.segments[1:]
        cut = Cut(topic=log.topic, partition=0, start=some[-1].end, moved=False)
        await sweep.sweep(
            shop.lake(), ManifestBlocks(shop.store), cut, {(seg.base, seg.etag) for seg in some}
        )
    kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
    assert kv is not None
    meta = decode_meta(kv.value)
    assert meta.chunks == ()
    told = decode_manifest(await shop.store.get(meta.epochs_key)).epochs
    assert told == tuple(EpochStart(epoch=2 + number, start=5 * number) for number in range(3))


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.DROP_REPLY])
async def test_a_delete_with_an_unknown_outcome_is_tried_again_by_the_next_run(fault: Fault) -> None:
    """The index of the second segment: until the store has answered for it nothing behind it counts as swept."""
    shop = Shop()
    log: LogBuilder = await shop.topic("t", retention_ms="50000")
    for number in range(5):
        await log.append(records(5, timestamp=20_000 * number, step_ms=1))
    key = shop.keys.index_key("t", 0, 5)
    lake = replace(shop.lake(), store=FaultyStore(shop.store, scripted(("delete", key, fault))))

    async def run() -> tuple[int, dict[Fate, int]]:
        done = await Retention(lake, grace_s=0, now_ms=lambda: 100_000).run()
        kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
        assert kv is not None
        return decode_meta(kv.value).swept, dict(done.fates)

    assert await run() == (5, {Fate.DELETED: 5, Fate.FAILED: 1})
    last = Fate.ABSENT if fault is Fault.DROP_REPLY else Fate.DELETED
    again = {Fate.ABSENT: 3, last: 1} if last is Fate.DELETED else {Fate.ABSENT: 4}
    assert await run() == (15, again)
    assert await run() == (15, {})
