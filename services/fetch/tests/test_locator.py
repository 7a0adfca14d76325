"""Which segments hold an offset: one manifest is asked for; of several that are needed, the rest come together."""

import asyncio

from kafscale.fetch.locator import MANIFESTS_AT_ONCE, Locator
from kafscale.log.heads import Head, ManifestRef, Meta, Seg
from kafscale.log.manifest_cache import ManifestCache
from kafscale.log.manifests import Manifest, encode_manifest
from kafscale.log.state import LogState
from kafscale.storage.objects import MemoryStore

CHUNKS = MANIFESTS_AT_ONCE + 2


def seg(base: int) -> Seg:
    return Seg(
        base=base, last_delta=9, size=100, etag="e", crc32c=0, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=10, batches=1, created_ms=0,
    )  # fmt: skip


class FarStore(MemoryStore):
    """Answers the first `alone` GETs, and none after them before `together` are on their way."""

    def __init__(self, together: int, *, alone: int = 0) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._alone = alone
        self._all_there = asyncio.Barrier(together)

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        self.asked.append(key)
        if len(self.asked) > self._alone:
            async with asyncio.timeout(5):
                await self._all_there.wait()
        return await super().get(key, if_match=if_match, start=start, end=end)


async def a_log_of_manifests(store: MemoryStore) -> LogState:
    """One segment in each."""
    refs = []
    for n in range(CHUNKS):
        await store.put(f"m{n}", [encode_manifest(Manifest(segments=(seg(10 * n),)))])
        refs.append(ManifestRef(key=f"m{n}", first=10 * n, last=10 * n + 9, count=1))
    end = 10 * CHUNKS
    return LogState(
        head=Head(epoch=1, topic="t", next=end, lso=end), meta=Meta(manifest_end=end, chunks=tuple(refs))
    )


async def test_a_read_that_one_manifest_serves_asks_for_no_other() -> None:
    store = FarStore(1)
    state = await a_log_of_manifests(store)
    async with asyncio.TaskGroup() as tasks:
        manifests = ManifestCache(store, tasks, segments_max=100, timeout_ms=10_000)
        segs = await Locator(manifests).load_for(state, 10, 1, count_max=100)
    assert [found.base for found in segs] == [10]
    assert store.asked == ["m1"]


async def test_the_next_manifests_are_loaded_side_by_side_and_no_more_than_a_bound() -> None:
    store = FarStore(MANIFESTS_AT_ONCE, alone=1)
    state = await a_log_of_manifests(store)
    async with asyncio.TaskGroup() as tasks:
        manifests = ManifestCache(store, tasks, segments_max=100, timeout_ms=10_000)
        segs = await Locator(manifests).load_for(state, 5, 150, count_max=100)
    assert [found.base for found in segs] == [0, 10, 20, 30]
    assert store.asked == [f"m{n}" for n in range(1 + MANIFESTS_AT_ONCE)]


async def test_a_reader_who_will_come_finds_the_manifests_there() -> None:
    store = FarStore(1)
    state = await a_log_of_manifests(store)
    async with asyncio.TaskGroup() as tasks:
        locator = Locator(ManifestCache(store, tasks, segments_max=100, timeout_ms=10_000))
        assert locator.choose_now(state, 0, 150, count_max=100) is None
        locator.warm(state, 0)
        locator.warm(state, 0)
    assert locator.choose_now(state, 0, 150, count_max=100) is not None
    assert len(store.asked) == MANIFESTS_AT_ONCE, "each once"
