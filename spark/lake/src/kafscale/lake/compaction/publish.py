"""How a rewritten group takes the place of its segments: two objects, one or two manifests, one compare-and-swap.

The laws. Meta is read before anything is uploaded, and every object has a fresh name outside the topic's tree. The swap
compares meta's revision; if meta moved on meanwhile, as a busy owner's checkpoints make it, it is tried again from what
stands there now, as long as `gc_seq` is the one of the first reading (so no collector of orphans has condemned what was
uploaded) and the replaced segments are still listed as they were. An unknown outcome is asked again, and settled by
what meta names and the manifests list. Nothing is deleted here that a commit names or could name: what was replaced
is handed to the caller, who waits for the reads under way, and what may have been published is left to the collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from kafscale.lake.catalog import NEVER, Lake, Log
from kafscale.lake.compaction.rewrite import Rewritten
from kafscale.lake.listing import Manifests
from kafscale.lake.retention.deletes import Condemned
from kafscale.storage.etcd.client import Compare, EtcdUnknown, Put, Txn
from kafscale.storage.heads import ManifestRef, Meta, Seg, decode_meta, encode_meta
from kafscale.storage.keys import META_TOPIC_ID, index_beside
from kafscale.storage.manifests import ManifestDraft, seg_of
from kafscale.storage.objects import Doomed, IfAbsent, ObjectNotFound, StoreError
from kafscale.storage.segment import build_segment

SWAPS_MAX: Final = 16
"""Tries while others change meta."""
ASKS_MAX: Final = 5
"""Sends of one swap while etcd does not say what became of it."""
ASK_AGAIN_S: Final = 0.5
OBJECT_TIMEOUT_S: Final = 60.0


class Overtaken(Exception):
    """Others changed the log under the rewrite, or deleted it. `in_doubt`: what was uploaded may have been
    published, and replaced since; else it never was."""

    def __init__(self, log: Log, what: str, *, in_doubt: bool = False) -> None:
        super().__init__(f"{log.topic.name}/{log.partition}: {what}")
        self.log = log
        self.what = what
        self.in_doubt = in_doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """Meta as it was read before the first upload."""

    meta: Meta
    revision: int


async def footing(lake: Lake, log: Log) -> Footing:
    """Raises Overtaken when the log is gone."""
    found = await lake.etcd.get(lake.keys.meta(log.topic.topic_id, log.partition))
    if found is None:
        raise Overtaken(log, "its meta is gone")
    return Footing(meta=decode_meta(found.value), revision=found.mod_revision)


async def upload(lake: Lake, log: Log, group: Sequence[Seg], rewritten: Rewritten) -> Seg:
    """The two objects of a rewritten group. Raises StoreError."""
    built = build_segment(
        group[0].base, rewritten.batches, rewritten.parts, created_ms=max(seg.created_ms for seg in group)
    )
    assert built.last_offset == group[-1].last, (built.last_offset, group[-1].last)
    key = lake.keys.compacted_key(log.topic.topic_id, log.partition, group[0].base, uuid.uuid4().hex)
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
        aborted=tuple(aborted for seg in group for aborted in seg.aborted),
        delete_horizon_ms=rewritten.delete_horizon_ms,
    )


async def publish(lake: Lake, log: Log, before: Footing, group: Sequence[Seg], seg: Seg) -> list[Condemned]:
    """`seg` in the place of `group`: what nothing names any more.

    Raises Overtaken, and EtcdError and StoreError with the outcome open.
    """
    here, in_doubt = before, False
    try:
        for _ in range(SWAPS_MAX):
            if here.meta.gc_seq != before.meta.gc_seq:
                break
            listing = await _listing(lake, log, here.meta, group, seg)
            swap = await _prepare(lake, log, here, listing, group, seg)
            sent = await _send(lake, swap)
            if sent is _Sent.APPLIED:
                return _condemned(lake, log, group, [ref.key for ref in listing.refs])
            if sent is _Sent.REFUSED_AGAIN:
                if await _was_applied(lake, log, swap, seg):
                    return _condemned(lake, log, group, [ref.key for ref in listing.refs])
                in_doubt = True
            await discard(lake, swap.manifests)
            here = await footing(lake, log)
    except Overtaken as overtaken:
        raise Overtaken(log, overtaken.what, in_doubt=in_doubt) from overtaken
    raise Overtaken(log, "its meta kept changing, or a collector of orphans came by", in_doubt=in_doubt)


def _condemned(lake: Lake, log: Log, group: Sequence[Seg], manifests: Sequence[str]) -> list[Condemned]:
    objects: list[tuple[str, str | None]] = []
    for seg in group:
        objects += [(lake.key_of(log, seg), seg.etag), (lake.index_key_of(log, seg), seg.index_etag)]
    objects += [(key, None) for key in manifests]
    return [Condemned(topic=log.topic, key=key, etag=etag) for key, etag in objects]


async def discard(lake: Lake, keys: Sequence[str]) -> None:
    """Objects of ours that no commit names nor ever will. Best effort: a collector of orphans follows."""
    with contextlib.suppress(TimeoutError, StoreError):
        async with asyncio.timeout(OBJECT_TIMEOUT_S):
            await lake.store.delete_many([Doomed(key) for key in keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The manifests that list a group, and what is to list its successor in their place, with its level.

    What follows the group in the last manifest gets one of its own, so that manifests do not grow together.
    """

    refs: tuple[ManifestRef, ...]
    drafts: tuple[tuple[ManifestDraft, int], ...]


class _Sent(Enum):
    """What became of a swap. REFUSED_AGAIN: a send before may have been applied, and meta has moved on since."""

    APPLIED = auto()
    REFUSED = auto()
    REFUSED_AGAIN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Swap:
    txn: Txn
    manifests: tuple[str, ...]


async def _listing(lake: Lake, log: Log, meta: Meta, group: Sequence[Seg], seg: Seg) -> _Listing:
    """Raises Overtaken when the group is not listed as it was."""
    first, last = group[0].base, group[-1].last
    refs = [ref for ref in meta.chunks if ref.last >= first and ref.first <= last]
    draft, waiting = ManifestDraft(), list(reversed(group))
    after = draft if len(refs) == 1 else ManifestDraft()
    try:
        async with aclosing(Manifests(lake.store).lines(refs, 0, NEVER)) as lines:
            async for line in lines:
                if line.base + line.last_delta < first:
                    draft.add(line)
                elif line.base > last:
                    after.add(line)
                elif not waiting or seg_of(line) != waiting.pop():
                    raise Overtaken(log, f"segments {first} to {last} are not listed as they were")
                elif not waiting:
                    draft.add(seg)
    except ObjectNotFound as gone:
        raise Overtaken(log, f"manifest {gone.key} was replaced") from gone
    if waiting:
        raise Overtaken(log, f"segments {first} to {last} are not listed as they were")
    drafts = [(draft, refs[0].level)]
    if after is not draft and after.count:
        drafts.append((after, refs[-1].level))
    return _Listing(refs=tuple(refs), drafts=tuple(drafts))


async def _prepare(
    lake: Lake, log: Log, here: Footing, listing: _Listing, group: Sequence[Seg], seg: Seg
) -> _Swap:
    """The manifests uploaded and the transaction that names them."""
    refs = [await _put_manifest(lake, log, draft, level) for draft, level in listing.drafts]
    old = {ref.key for ref in listing.refs}
    at = [ref.key for ref in here.meta.chunks].index(listing.refs[0].key)
    chunks = [ref for ref in here.meta.chunks if ref.key not in old]
    chunks[at:at] = refs
    freed = here.meta.freed + sum(each.size for each in group) - seg.size
    meta = replace(here.meta, chunks=tuple(chunks), freed=freed, gc_seq=here.meta.gc_seq + 1)
    key = lake.keys.meta(log.topic.topic_id, log.partition)
    txn = Txn(compare=(Compare(key, "mod", "=", here.revision),), success=(Put(key, encode_meta(meta)),))
    return _Swap(txn=txn, manifests=tuple(ref.key for ref in refs))


async def _put_manifest(lake: Lake, log: Log, draft: ManifestDraft, level: int) -> ManifestRef:
    key = lake.keys.manifest_key(log.topic.topic_id, log.partition, draft.first, uuid.uuid4().hex)
    async with asyncio.timeout(OBJECT_TIMEOUT_S):
        await lake.store.put(key, draft.parts(), condition=IfAbsent())
    return draft.ref(key, level)


async def _send(lake: Lake, swap: _Swap) -> _Sent:
    """Refused: no copy of it can be applied any more, as meta has moved on. Raises EtcdError while that is open."""
    unknown: EtcdUnknown | None = None
    for _ in range(ASKS_MAX):
        try:
            result = await lake.etcd.txn(swap.txn)
        except EtcdUnknown as error:
            unknown = error
            await asyncio.sleep(ASK_AGAIN_S)
            continue
        if result.succeeded:
            return _Sent.APPLIED
        return _Sent.REFUSED if unknown is None else _Sent.REFUSED_AGAIN
    assert unknown is not None, "every other way out returns"
    raise unknown


async def _was_applied(lake: Lake, log: Log, swap: _Swap, seg: Seg) -> bool:
    """By a meta read after the refusal. Only this swap names its manifests; a checkpoint may have merged them since,
    and then they list its segment. False: it was not applied, or others have replaced all that it named."""
    chunks = (await footing(lake, log)).meta.chunks
    if any(ref.key in swap.manifests for ref in chunks):
        return True
    for ref in chunks:
        if ref.first <= seg.base <= ref.last:
            async with aclosing(Manifests(lake.store).lines([ref], seg.base, seg.end)) as lines:
                return any([line.key == seg.key async for line in lines])
    return False
