"""Rounds of compaction that cannot pay for a whole log: they get on all the same, and so do the logs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.compaction.due import Due, candidates, in_turn, look
from kafscale.lake.compaction.record_filter import LoadedSegment
from kafscale.lake.compaction.report import Report
from kafscale.lake.compaction.run import AHEAD_BYTES_MAX, AHEAD_MAX, Bounds, Pace, Round, read_ahead
from kafscale.lake.heads import HEADS
from kafscale.log.heads import Seg
from kafscale.storage.job_runs import CompactionPass, decode_compaction_pass
from kafscale.storage.objects import StoreUnavailable
from kafscale.testkit.logbuilder import LogBuilder
from kafscale.wire.records import Codec, Record

from .compaction_rounds import (
    DUE,
    NOW,
    compact,
    grow,
    is_sound,
    kept,
    last_values,
    meta_of,
    produced,
    read,
)
from .shop import Death, Died, Shop

ALWAYS_DUE = DUE | {"min_cleanable_dirty_ratio": "0"}
ROUNDS_MAX = 60


@pytest.fixture
def shop() -> Shop:
    return Shop()


class Clock:
    """Only what is paid for takes time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self.now_s += max(0.0, delay_s)


async def short_round(lake: Lake, *, bytes_max: int) -> Report:
    """A round whose time is over when about `bytes_max` bytes were read and written."""
    clock = Clock()
    pace = Pace(io_bytes_per_s=bytes_max, within_ms=1_000, clock=clock, sleep=clock.sleep)
    return await Round(lake, Bounds(grace_s=0), lambda *_: None, lambda: NOW, pace).run()


async def pass_of(shop: Shop, log: LogBuilder) -> CompactionPass | None:
    kv = await shop.etcd.get(shop.keys.compaction_pass(log.topic.topic_id, 0))
    return None if kv is None else decode_compaction_pass(kv.value)


async def big_log(shop: Shop, **configs: str) -> LogBuilder:
    """A clean part of 400 KB that no record ever leaves by itself, and a dirty one that replaces all of it."""
    log = await shop.topic("big", **(DUE | {"segment_bytes": "20000"} | configs))

    async def write(segments: int, value: bytes) -> None:
        for number in range(segments):
            keys = [b"u%d-%d" % (number % 40, each) for each in range(10)]
            await log.append([Record(timestamp=100, key=key, value=value * 1_000) for key in keys])
        await log.checkpoint(keep=1)

    await write(40, b"x")
    await compact(shop.lake())
    log.meta = await meta_of(shop, log)
    await write(60, b"y")
    return log


async def dirty_of(shop: Shop) -> dict[str, int]:
    found, _ = await candidates(shop.lake(), None, NOW)
    return {each.log.topic.name: each.dirty.segments for each in found}


async def test_rounds_get_on_with_a_log_that_none_of_them_can_pay_for(shop: Shop) -> None:
    log = await big_log(shop, **ALWAYS_DUE)
    for number in range(ROUNDS_MAX):
        if not await dirty_of(shop):
            break
        before = await pass_of(shop, log), await dirty_of(shop)
        done = await short_round(shop.lake(), bytes_max=500_000)
        assert not done.stands_still
        assert (await pass_of(shop, log), await dirty_of(shop)) != before, f"round {number} was for nothing"
        assert last_values(await read(shop.lake(), "big")) == last_values(produced(log))
    assert await dirty_of(shop) == {}
    assert await pass_of(shop, log) is None
    assert await is_sound(shop) == set()


async def test_a_round_goes_on_where_another_ended(shop: Shop) -> None:
    log = await big_log(shop)
    await short_round(shop.lake(), bytes_max=700_000)
    left = await pass_of(shop, log)
    assert left is not None
    clean = [seg for seg in (await read_lake(shop.lake()))[0].segments if seg.end <= left.next]
    assert clean
    store: Any = Reads(shop)
    await short_round(Lake(shop.etcd, shop.keys, store), bytes_max=700_000)
    assert not {seg.key for seg in clean} & set(store.keys), "what a round has gone through is not read again"


class Reads:
    """A store that counts which objects were read."""

    def __init__(self, shop: Shop) -> None:
        self._store = shop.store
        self.keys: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str, **how: Any) -> bytes:
        self.keys.append(key)
        return await self._store.get(key, **how)


async def test_a_large_log_starves_no_other(shop: Shop) -> None:
    """Its dirty ratio is the higher one, so by the ratio alone it would have all the time of each round."""
    await big_log(shop)
    small = await shop.topic("small", **DUE)
    await grow(small, 6, cycle(Codec))
    await small.checkpoint(keep=1)
    await compact(shop.lake(), within_ms=None)
    small.meta = await meta_of(shop, small)
    shop.logs["big"].meta = await meta_of(shop, shop.logs["big"])
    await grow(small, 1, cycle(Codec))
    await small.checkpoint(keep=1)
    big = shop.logs["big"]
    for number in range(60):
        keys = [b"u%d-%d" % (number % 40, each) for each in range(10)]
        await big.append([Record(timestamp=100, key=key, value=b"z" * 1_000) for key in keys])
    await big.checkpoint(keep=1)
    found = [await look(shop.lake(), (name, 0), NOW) for name in ("big", "small")]
    ratios = [each.ratio for each in found if each is not None]
    assert ratios[0] > ratios[1] > 0.1
    await short_round(shop.lake(), bytes_max=200_000)
    assert await pass_of(shop, big) is not None
    await short_round(shop.lake(), bytes_max=200_000)
    assert await dirty_of(shop) == {"big": 60}


async def test_what_is_written_while_a_pass_waits_is_for_the_next_pass(shop: Shop) -> None:
    """The clean part below the position was gone through without the keys of what came later."""
    log = await big_log(shop, **ALWAYS_DUE)
    await short_round(shop.lake(), bytes_max=700_000)
    left = await pass_of(shop, log)
    assert left is not None
    assert left.next > 100
    log.meta = await meta_of(shop, log)
    for number in range(40):
        keys = [b"u%d-%d" % (number, each) for each in range(10)]
        await log.append([Record(timestamp=100, key=key, value=b"z") for key in keys])
    await log.checkpoint(keep=1)
    for _ in range(ROUNDS_MAX):
        await short_round(shop.lake(), bytes_max=700_000)
    assert await dirty_of(shop) == {}
    assert await read(shop.lake(), "big") == kept(log, tail=1)


@pytest.mark.timeout(600)
async def test_killed_anywhere_a_pass_that_was_left_is_ended_rightly(shop: Shop) -> None:
    log = await shop.topic("t", **(ALWAYS_DUE | {"segment_bytes": "700"}))
    await grow(log, 4, cycle([Codec.NONE]))
    await log.checkpoint(keep=1)
    await compact(shop.lake())
    log.meta = await meta_of(shop, log)
    await grow(log, 4, cycle([Codec.NONE]))
    await log.checkpoint(keep=1)
    before = shop.take()
    death = Death()
    await short_round(shop.lake(death), bytes_max=1_500)
    assert await pass_of(shop, log) is not None
    for at in range(1, len(death.calls) + 1, 2):
        shop.put_back(before)
        with pytest.raises(Died):
            await short_round(shop.lake(Death(at)), bytes_max=1_500)
        for _ in range(ROUNDS_MAX):
            await short_round(shop.lake(), bytes_max=1_500)
            assert last_values(await read(shop.lake())) == last_values(produced(log))
        assert await read(shop.lake()) == kept(log, tail=1)


async def test_a_round_that_can_pay_for_nothing_gets_on_by_a_group(shop: Shop) -> None:
    """So no setting of the budget, and no segment's size, keeps a log from being compacted in the end."""
    log = await shop.topic("t", **ALWAYS_DUE)
    await grow(log, 6, cycle([Codec.NONE]))
    await log.checkpoint(keep=1)
    for number in range(ROUNDS_MAX):
        if not await dirty_of(shop):
            break
        done = await short_round(shop.lake(), bytes_max=1)
        assert not done.stands_still, f"round {number}"
    assert await dirty_of(shop) == {}
    assert await read(shop.lake()) == kept(log, tail=1)


class Dark:
    """A store that gives no segment."""

    def __init__(self, shop: Shop) -> None:
        self._store = shop.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str, **how: Any) -> bytes:
        if key.endswith(".kfs"):
            raise StoreUnavailable(key, "no answer")
        return await self._store.get(key, **how)


async def test_a_round_in_which_no_log_gets_on_says_so(shop: Shop) -> None:
    await big_log(shop)
    store: Any = Dark(shop)
    done = await short_round(Lake(shop.etcd, shop.keys, store), bytes_max=700_000)
    assert done.stands_still
    assert not (await short_round(shop.lake(), bytes_max=700_000)).stands_still
    await compact(shop.lake())
    assert not (await compact(shop.lake())).stands_still, "nothing was due"


async def test_a_position_that_cannot_be_read_costs_one_pass_from_the_beginning(shop: Shop) -> None:
    log = await big_log(shop)
    await shop.etcd.put(shop.keys.compaction_pass(log.topic.topic_id, 0), b"\xff")
    await compact(shop.lake())
    assert await dirty_of(shop) == {}


@given(st.lists(st.tuples(st.floats(0, 1), st.none() | st.integers(0, 9)), max_size=8))
def test_every_due_log_has_its_turn_and_what_was_left_longest_the_first(
    logs: list[tuple[float, int | None]],
) -> None:
    due = [
        Due(
            place=("t", number),
            ratio=ratio,
            left=None if left_ms is None else CompactionPass(next=1, end=2, left_ms=left_ms),
        )
        for number, (ratio, left_ms) in enumerate(logs)
    ]
    turns = list(in_turn(due))
    left = [each for each in due if each.left is not None]
    fresh = [each for each in due if each.left is None]
    assert [each for each, _ in turns if each.left is None] == sorted(
        fresh, key=lambda each: (-each.ratio, each.place)
    )
    first = [each for each, _ in turns[: len(left)]]
    assert first == sorted(left, key=lambda each: each.left.left_ms if each.left else 0)
    assert [half for _, half in turns[: len(left)]] == [bool(fresh)] * len(left)
    assert {each.place for each, half in turns if not half} == {each.place for each in due}


async def test_what_is_read_ahead_is_bounded_in_number_and_in_bytes(shop: Shop) -> None:
    log = await big_log(shop)
    segs = [
        replace(seg, size=size)
        for seg, size in zip(log.segments, cycle([5 << 20, 20 << 20, 40 << 20, 1]), strict=False)
    ]
    under_way: list[Seg] = []

    async def read(seg: Seg) -> LoadedSegment:
        under_way.append(seg)
        held = sum(each.size for each in under_way)
        assert len(under_way) == 1 or (len(under_way) <= AHEAD_MAX and held <= AHEAD_BYTES_MAX)
        await asyncio.sleep(0)
        return LoadedSegment(seg=seg, data=b"", heads=np.empty(0, HEADS))

    seen, most = [], 0

    async def each_of() -> AsyncIterator[Seg]:
        for seg in segs:
            yield seg

    async for source in read_ahead(read, each_of()):
        most = max(most, len(under_way))
        under_way.remove(source.seg)
        seen.append(source.seg)
    assert seen == segs
    assert most > 1
