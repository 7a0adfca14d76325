"""What the cache of segments costs: of tiny segments it holds tens of thousands, and an answer asks for hundreds."""

import asyncio
import sys
import tracemalloc
from types import FrameType
from typing import Any

from kafscale.fetch import cache as cache_module
from kafscale.fetch.cache import SegmentCache
from kafscale.fetch.loads import CacheLimits
from kafscale.log.heads import Head, Seg, decode_head, encode_head
from kafscale.log.places import Place
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.runtime.budget import MemoryBudget
from kafscale.storage.objects import IfAbsent, MemoryStore, StoreUnavailable
from kafscale.wire.records import Record, build_batch

SIZE = 100
ROOM = SIZE + cache_module.ENTRY_COST_BYTES


class SlowStore(MemoryStore):
    """Answers nothing until it is told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = asyncio.Event()

    async def get(self, key: str, **how: Any) -> bytes:
        await self.fails.wait()
        raise StoreUnavailable(key, "told to")


def seg(base: int) -> Seg:
    return Seg(
        base=base, last_delta=0, size=SIZE, etag=f"e{base}", crc32c=0, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=1, batches=1, created_ms=0,
    )  # fmt: skip


class Steps:
    """Lines of the cache's module that run inside the block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Steps":
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return self._line if frame.f_code.co_filename == cache_module.__file__ else None

    def _line(self, _frame: FrameType, event: str, _arg: object) -> Any:
        self.count += event == "line"
        return self._line


async def steps_to_read_ahead(held: int) -> int:
    """With that many segments pinned by an answer, and no room for one more."""
    store = SlowStore()
    async with asyncio.TaskGroup() as tasks:
        limits = CacheLimits(keep_bytes=held * ROOM)
        cache = SegmentCache(store, limits, tasks, MemoryBudget(1 << 30))
        lease = cache.lease()
        for base in range(held):
            lease.want(Place(f"{base}.kfs", f"e{base}"), seg(base))
        with Steps() as steps:
            assert cache.read_ahead(Place("next.kfs", f"e{held}"), seg(held)) is False
        store.fails.set()
    lease.release()
    assert cache.held_bytes == 0
    return steps.count


async def test_reading_ahead_costs_the_same_however_much_is_held() -> None:
    few, many = await steps_to_read_ahead(10), await steps_to_read_ahead(1_000)
    assert many == few


async def committed(store: MemoryStore, base: int) -> bytes:
    """An object of one small record, and the head that lists it as etcd would give it."""
    batch = build_batch([Record(timestamp=1_700_000_000_000 + base, value=b"x")], base_offset=base)
    built = build_segment(base, [BatchInfo(base, base, len(batch), 1)], [batch], created_ms=1_700_000_000_000)
    etag = await store.put(f"{base}.kfs", built.body, condition=IfAbsent(), metadata={})
    seg = Seg(
        base=base, last_delta=0, size=built.size, etag=etag, crc32c=built.crc32c, index_size=len(built.index),
        index_etag=etag, epoch=1, min_ts=1_700_000_000_000 + base, max_ts=1_700_000_000_000 + base, records=1,
        batches=1, created_ms=1_700_000_000_000 + base,
    )  # fmt: skip
    return encode_head(Head(epoch=1, topic="t", tail=(seg,), next=base + 1, lso=base + 1))


async def test_what_tiny_segments_cost_is_what_the_cache_counts() -> None:
    """The store keeps its own bytes and hands out those, so they are added to what the cache is seen to take."""
    store, count = MemoryStore(), 500
    heads = [await committed(store, base) for base in range(1_000, 1_000 + count)]
    async with asyncio.TaskGroup() as tasks:
        cache = SegmentCache(store, CacheLimits(keep_bytes=1 << 30), tasks, MemoryBudget(1 << 30))
        tracemalloc.start()
        try:
            for head in heads:
                (found,) = decode_head(head).tail
                lease = cache.lease()
                await lease.want(Place(f"{found.base}.kfs", found.etag), found)
                lease.release()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    objects = sum(seg.size for head in heads for seg in decode_head(head).tail)
    assert len(heads) * cache_module.ENTRY_COST_BYTES + objects == cache.held_bytes
    assert cache.held_bytes / 2 < taken + objects <= cache.held_bytes
