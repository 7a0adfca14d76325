"""The segments of a log, whichever way its manifests are read: all of them from an offset on, or a gap is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.heads import Head, ManifestRef, Meta, Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.manifest_cache import ManifestCache
from kafscale.log.manifests import Manifest, encode_manifest
from kafscale.log.segments import Manifests, OffsetGap, segments_from
from kafscale.log.state import LogState
from kafscale.storage.objects import MemoryStore

SEGMENTS = 12
RECORDS = 5
END = SEGMENTS * RECORDS


def seg(number: int) -> Seg:
    return Seg(
        base=number * RECORDS, last_delta=RECORDS - 1, size=100, etag="e", crc32c=0, index_size=0, index_etag="",
        epoch=1, min_ts=0, max_ts=0, records=RECORDS, batches=1, created_ms=0,
    )  # fmt: skip


SEGS = tuple(seg(number) for number in range(SEGMENTS))


async def stored(
    store: MemoryStore, listed: Sequence[Sequence[Seg]], tail: Sequence[Seg], start: int
) -> LogState:
    """A log with these segments in its manifests, and these in its tail."""
    refs = []
    for number, segs in enumerate(listed):
        await store.put(f"m{number}", [encode_manifest(Manifest(segments=tuple(segs)))])
        refs.append(ManifestRef(key=f"m{number}", first=segs[0].base, last=segs[-1].last, count=len(segs)))
    meta = Meta(log_start=start, manifest_end=refs[-1].last + 1 if refs else 0, chunks=tuple(refs))
    return LogState(head=Head(epoch=1, topic="t", next=END, lso=END, tail=tuple(tail)), meta=meta)


async def read(manifests: Manifests, state: LogState, offset: int) -> list[Seg] | int:
    """The segments; or the offset that is missing."""
    try:
        async with aclosing(segments_from(manifests, state, offset)) as found:
            return [each async for each in found]
    except OffsetGap as gap:
        return gap.due


async def read_both_ways(store: MemoryStore, state: LogState, offset: int) -> list[Seg] | int:
    blocks = await read(ManifestBlocks(store, block_bytes=50), state, offset)
    async with asyncio.TaskGroup() as tasks:
        cached = await read(ManifestCache(store, tasks, segments_max=100, timeout_ms=10_000), state, offset)
    assert blocks == cached
    return blocks


def in_manifests(cuts: Sequence[int]) -> tuple[list[tuple[Seg, ...]], tuple[Seg, ...]]:
    """The log cut at these segments: the last part is the tail."""
    edges = [0, *sorted(set(cuts)), SEGMENTS]
    parts = [SEGS[left:right] for left, right in zip(edges, edges[1:], strict=False)]
    return [part for part in parts[:-1] if part], parts[-1]


@given(st.lists(st.integers(0, SEGMENTS), max_size=4), st.integers(0, END), st.integers(0, END))
def test_every_segment_from_an_offset_on(cuts: list[int], start: int, offset: int) -> None:
    async def run() -> None:
        store = MemoryStore()
        listed, tail = in_manifests(cuts)
        state = await stored(store, listed, tail, start)
        assert await read_both_ways(store, state, offset) == [each for each in SEGS if each.end > offset]

    asyncio.run(run())


@given(
    st.lists(st.integers(0, SEGMENTS), max_size=4),
    st.integers(0, SEGMENTS - 1),
    st.integers(0, END - 1),
    st.integers(0, END - 1),
)
def test_a_segment_that_is_lost_between_manifests_is_never_passed_over(
    cuts: list[int], lost: int, start: int, offset: int
) -> None:
    """Inside a manifest a gap makes the manifest unreadable. Here whole manifests, or the tail's segments, are lost."""

    async def run() -> None:
        store = MemoryStore()
        listed, tail = in_manifests([*cuts, lost, lost + 1])
        kept = [part for part in listed if part != (SEGS[lost],)]
        state = await stored(store, kept, [each for each in tail if each != SEGS[lost]], start)
        due = max(offset, SEGS[lost].base)
        if lost == 0:  # what is below the log start need not be there
            due = max(offset, min(start, SEGS[1].base))
        found = await read_both_ways(store, state, offset)
        if due > SEGS[lost].last:
            assert found == [each for each in SEGS if each.end > offset and each != SEGS[lost]]
        else:
            assert found == due

    asyncio.run(run())


@pytest.mark.parametrize("next_", [END + 1, END + RECORDS])
async def test_a_log_that_ends_before_its_high_watermark_has_a_gap(next_: int) -> None:
    store = MemoryStore()
    listed, tail = in_manifests([4, 8])
    state = await stored(store, listed, tail, 0)
    assert state.head is not None
    assert await read_both_ways(store, replace(state, head=replace(state.head, next=next_)), 7) == END
