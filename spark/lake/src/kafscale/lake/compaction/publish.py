"""Publishes a rewritten group in the place of its segments: two objects, one or two manifests, one compare-and-swap.

The laws. Meta is read before anything is uploaded, and every object has a fresh name outside the topic's tree. If the
swap (`log.meta_swap`) loses to another change of meta, such as a checkpoint of a busy owner, it is tried again from
the new meta, as long as `gc_seq` is the one of the first read (so no collection of orphans has condemned what was
uploaded) and the replaced segments are still listed as they were. A swap in doubt is settled by what meta names and the
manifests list. Nothing is deleted here that a commit names or could name: the caller deletes what was replaced, after
the reads in flight, and the collection of orphans deletes what may have been published.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from kafscale.lake.catalog import NEVER, Lake, Log, Outline, read_outline
from kafscale.lake.compaction.rewrite import Rewritten
from kafscale.lake.retention.deletes import Condemned, condemned
from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.isolation import aborted_in
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.manifests import ManifestDraft, seg_of
from kafscale.log.meta_swap import Draft, Overtaken, build_swap, swap
from kafscale.log.segment import build_segment
from kafscale.storage.keys import META_TOPIC_ID, index_beside
from kafscale.storage.objects import Doomed, IfAbsent, ObjectNotFound, StoreError
from kafscale.storage.system import random_uuid

OBJECT_TIMEOUT_S: Final = 60.0


async def read_existing(lake: Lake, log: Log) -> Outline:
    """Raises Overtaken if the log is gone."""
    outline = await read_outline(lake, log.topic, log.partition)
    if not outline.meta_revision:
        raise Overtaken(log.name, "its meta is gone")
    return outline


async def upload(lake: Lake, log: Log, group: Sequence[Seg], rewritten: Rewritten) -> Seg:
    """The two objects of a rewritten group. Raises StoreError."""
    built = build_segment(
        group[0].base, rewritten.batches, rewritten.parts, created_ms=max(seg.created_ms for seg in group)
    )
    assert built.last_offset == group[-1].last, (built.last_offset, group[-1].last)
    key = lake.keys.compacted_key(log.topic.topic_id, log.partition, group[0].base, random_uuid().hex)
    metadata = {META_TOPIC_ID: log.topic.topic_id.hex()}
    index_key = index_beside(key)
    async with asyncio.timeout(OBJECT_TIMEOUT_S):
        etag = await lake.store.put(key, built.body, condition=IfAbsent(), metadata=metadata)
        index_etag = await lake.store.put(index_key, (built.index,), condition=IfAbsent(), metadata=metadata)
    return Seg(
        base=group[0].base,
        last_delta=group[-1].last - group[0].base,
        size=built.size,
        etag=etag,
        crc32c=built.crc32c,
        index_size=len(built.index),
        index_etag=index_etag,
        epoch=group[0].epoch,
        min_ts=rewritten.min_ts,
        max_ts=rewritten.max_ts,
        records=built.records,
        batches=built.batches,
        created_ms=max(seg.created_ms for seg in group),
        key=key,
        aborted=tuple(each for each in aborted_in(group) if each.last not in rewritten.markers_gone),
        unstable=group[-1].unstable,
        delete_horizon_ms=rewritten.delete_horizon_ms,
    )


async def publish(lake: Lake, log: Log, before: Outline, group: Sequence[Seg], seg: Seg) -> list[Condemned]:
    """Puts `seg` in the place of `group`. The objects that nothing names any more.

    Raises Overtaken, and EtcdError and StoreError with the outcome open.
    """
    here: Outline | None = before

    async def prepare() -> _Publication:
        nonlocal here
        now, here = here or await read_existing(lake, log), None
        if now.meta.gc_seq != before.meta.gc_seq:
            raise Overtaken(log.name, "a collection of orphans or another round has raised its gc_seq")
        listing = await _listing(lake, log, now, group, seg)
        return await _prepare(lake, log, now, listing, group, seg)

    return await swap(lake.etcd, log.name, prepare)


async def discard(lake: Lake, keys: Sequence[str]) -> None:
    """Deletes objects that no commit names or ever will. Best effort: the collection of orphans finds the rest."""
    with contextlib.suppress(TimeoutError, StoreError):
        async with asyncio.timeout(OBJECT_TIMEOUT_S):
            await lake.store.delete_many([Doomed(key) for key in keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The manifests that list a group, and the drafts that replace them, each with its level.

    The segments after the group in the last manifest get a separate draft, so that manifests do not grow.
    """

    refs: tuple[ManifestRef, ...]
    drafts: tuple[tuple[ManifestDraft, int], ...]


@dataclass(frozen=True, slots=True)
class _Publication(Draft[list[Condemned]]):
    """A try, and the manifests that were uploaded for it: only its transaction names them."""

    lake: Lake
    log: Log
    seg: Seg
    manifests: tuple[str, ...]

    async def was_applied(self) -> bool:
        """By meta as it is after the refusal. A checkpoint may have merged the manifests since; then the merged one
        lists the segment. False: it was not applied, or others have replaced all that it named."""
        chunks = (await read_existing(self.lake, self.log)).meta.chunks
        if any(ref.key in self.manifests for ref in chunks):
            return True
        for ref in chunks:
            if ref.first <= self.seg.base <= ref.last:
                lines = ManifestBlocks(self.lake.store).lines([ref], self.seg.base, self.seg.end)
                async with aclosing(lines):
                    return any([line.key == self.seg.key async for line in lines])
        return False

    async def discard(self) -> None:
        await discard(self.lake, self.manifests)


async def _listing(lake: Lake, log: Log, now: Outline, group: Sequence[Seg], seg: Seg) -> _Listing:
    """Raises Overtaken if the group is not listed as it was."""
    meta, transactional = now.meta, now.transactional
    first, last = group[0].base, group[-1].last
    refs = [ref for ref in meta.chunks if ref.last >= first and ref.first <= last]
    draft, waiting = ManifestDraft(transactional=transactional), list(reversed(group))
    after = draft if len(refs) == 1 else ManifestDraft(transactional=transactional)
    try:
        async with aclosing(ManifestBlocks(lake.store).lines(refs, 0, NEVER)) as lines:
            async for line in lines:
                if line.base + line.last_delta < first:
                    draft.add(line)
                elif line.base > last:
                    after.add(line)
                elif not waiting or seg_of(line) != waiting.pop():
                    raise Overtaken(log.name, f"segments {first} to {last} are not listed as they were")
                elif not waiting:
                    draft.add(seg)
    except ObjectNotFound as gone:
        raise Overtaken(log.name, f"manifest {gone.key} was replaced") from gone
    if waiting:
        raise Overtaken(log.name, f"segments {first} to {last} are not listed as they were")
    drafts = [(draft, refs[0].level)]
    if after is not draft and after.count:
        drafts.append((after, refs[-1].level))
    return _Listing(refs=tuple(refs), drafts=tuple(drafts))


async def _prepare(
    lake: Lake, log: Log, here: Outline, listing: _Listing, group: Sequence[Seg], seg: Seg
) -> _Publication:
    """The manifests uploaded and the transaction that names them."""
    refs = [await _put_manifest(lake, log, draft, level) for draft, level in listing.drafts]
    old = {ref.key for ref in listing.refs}
    at = [ref.key for ref in here.meta.chunks].index(listing.refs[0].key)
    chunks = [ref for ref in here.meta.chunks if ref.key not in old]
    chunks[at:at] = refs
    freed = here.meta.freed + sum(each.size for each in group) - seg.size
    meta = replace(here.meta, chunks=tuple(chunks), freed=freed, gc_seq=here.meta.gc_seq + 1)
    txn = build_swap(lake.keys, log.topic.topic_id, log.partition, here, meta)
    replaced = condemned(lake, log.topic, log.partition, group)
    replaced += [Condemned(topic=log.topic, key=ref.key, etag=None) for ref in listing.refs]
    return _Publication(txn, replaced, lake, log, seg, tuple(ref.key for ref in refs))


async def _put_manifest(lake: Lake, log: Log, draft: ManifestDraft, level: int) -> ManifestRef:
    key = lake.keys.manifest_key(log.topic.topic_id, log.partition, draft.first, random_uuid().hex)
    async with asyncio.timeout(OBJECT_TIMEOUT_S):
        await lake.store.put(key, draft.parts(), condition=IfAbsent())
    return draft.ref(key, level)
