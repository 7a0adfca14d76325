"""Retention beside those who change the same keys: owners' checkpoints, DeleteRecords, another run of itself.

Each call to etcd or the store is a step, and the steps fall in every order, or in many drawn from a seed. After each:
whatever may be read is there, the start is where the rules put it, and one more run leaves nothing over.
"""

from __future__ import annotations

import random

import pytest
from kafscale.lake.catalog import Lake, read_lake, read_topics
from kafscale.lake.retention.apply import Report, Retention
from kafscale.lake.retention.orphans import Orphans
from kafscale.log.heads import decode_head, decode_meta
from kafscale.log.log_starts import build_move, build_read, read_if_unchanged
from kafscale.testkit.logbuilder import LogBuilder, records

from .interleaved import Actor, orders, play
from .owner import checkpointing
from .shop import Shop

NOW = 100_000
PER_SEGMENT = 5
KEPT_FROM = 3 * PER_SEGMENT
SAMPLES = 150


async def built() -> tuple[Shop, LogBuilder]:
    """Five segments, the first in a chunk, of which the first three have expired."""
    shop = Shop()
    log = await shop.topic("t", retention_ms="50000")
    for number in range(5):
        await log.append(records(PER_SEGMENT, timestamp=20_000 * number, step_ms=1))
        if number == 0:
            await log.checkpoint()
            await log.claim(2)
    return shop, log


async def retain(lake: Lake) -> Report:
    return await Retention(lake, grace_s=0, now_ms=lambda: NOW).run()


def deleting(offset: int) -> Actor:
    """DeleteRecords once, as the admin service does it."""

    async def act(lake: Lake) -> bool:
        (topic,) = await read_topics(lake)
        bounds = read_if_unchanged(await lake.etcd.txn(build_read(lake.keys, topic, 0)))
        assert bounds is not None
        if bounds.log_start >= offset:
            return True
        return (await lake.etcd.txn(build_move(lake.keys, topic, 0, bounds, offset))).succeeded

    return act


async def whole(shop: Shop, log: LogBuilder) -> int:
    """The log start; all from there on is there, and all that etcd names."""
    (read,) = await read_lake(shop.lake())
    assert read.end == log.next
    assert read.segments == tuple(seg for seg in log.segments if seg.end > read.start)
    for seg in read.segments:
        await shop.lake().fetch(read, seg)
        assert shop.keys.index_key("t", 0, seg.base) in shop.store.names()
    kv = await shop.etcd.get(shop.keys.head(log.topic.topic_id, 0))
    assert kv is not None
    named = {decode_head(kv.value).snap_key, read.meta.epochs_key, *(ref.key for ref in read.meta.chunks)}
    assert named - {""} <= shop.store.names()
    return read.start


async def nothing_is_left_over(shop: Shop, log: LogBuilder) -> None:
    await retain(shop.lake())
    await Orphans(shop.lake(), grace_s=0).collect()
    start = await whole(shop, log)
    kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
    assert kv is not None
    gone = max([0, *(seg.end for seg in log.segments if seg.end <= start)])
    assert decode_meta(kv.value).swept == gone
    live = {log.segment_key(seg) for seg in log.segments if seg.end > start}
    live |= {shop.keys.index_key("t", 0, seg.base) for seg in log.segments if seg.end > start}
    assert {key for key in shop.store.names() if "@" not in key} == live


async def steps_of(shop: Shop, actors: dict[str, Actor]) -> tuple[int, int]:
    before = shop.take()
    alone = await play(shop, ["retention"] * 1_000, actors)
    shop.put_back(before)
    return alone.count("retention"), alone.count("other")


async def test_deletions_of_records_fall_anywhere() -> None:
    shop, log = await built()
    before = shop.take()
    for offset in (KEPT_FROM - 2, KEPT_FROM + 2):
        actors: dict[str, Actor] = {"retention": retain, "other": deleting(offset)}
        steps, others = await steps_of(shop, actors)
        for order in orders("retention", steps, "other", others):
            shop.put_back(before)
            await play(shop, order, actors)
            assert await whole(shop, log) >= KEPT_FROM, "retention does not give up"
            await nothing_is_left_over(shop, log)


@pytest.mark.parametrize("keep", [0, 1, 3])
async def test_checkpoints_fall_anywhere(keep: int) -> None:
    shop, log = await built()
    before = shop.take()
    actors: dict[str, Actor] = {"retention": retain, "other": checkpointing(log.topic, keep)}
    steps, others = await steps_of(shop, actors)
    chance = random.Random(keep)
    for _ in range(SAMPLES):
        order = ["retention"] * steps + ["other"] * others
        chance.shuffle(order)
        shop.put_back(before)
        await play(shop, order, actors)
        assert await whole(shop, log) == KEPT_FROM, order
        await nothing_is_left_over(shop, log)


async def test_two_runs_at_once_do_each_others_work() -> None:
    shop, log = await built()
    before = shop.take()
    actors: dict[str, Actor] = {"retention": retain, "other": retain}
    steps, _ = await steps_of(shop, actors)
    chance = random.Random(1)
    for _ in range(SAMPLES):
        order = ["retention"] * steps + ["other"] * steps
        chance.shuffle(order)
        shop.put_back(before)
        await play(shop, order, actors)
        assert await whole(shop, log) == KEPT_FROM, order
        await nothing_is_left_over(shop, log)
