"""Records in meta what was deleted: how far a log is swept. Chunks that list only deleted segments are dropped.

The laws: `swept` passes a segment only when its objects are known to be gone, so no DELETE is sent twice. A chunk is
dropped only when all its segments are swept. Its epochs are kept forever, because clients still ask for the end of an
epoch whose records are gone. Meta's revision is read before anything is uploaded, and `gc_seq` rises with the change.
The object of a chunk is deleted only after the meta that does not name it is known to be written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

from kafscale.lake.catalog import Lake, read_outline
from kafscale.lake.retention.log_starts import Cut
from kafscale.log.heads import EpochStart, ManifestRef, Meta, Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.manifests import Manifest, encode_manifest
from kafscale.log.meta_swap import Draft, build_swap, swap
from kafscale.log.segments import segments_from
from kafscale.storage.objects import IfAbsent, ObjectNotFound
from kafscale.storage.system import random_uuid

Gone = Collection[tuple[int, str]]
"""Base and etag of the segments whose objects no longer exist."""


async def first_gone(segments: AsyncIterator[Seg], gone: Gone, start: int) -> list[Seg]:
    """The segments before the first whose objects may exist, none of them beyond `start`. Reads no farther, because a
    failed deletion must not keep all segments after it in memory."""
    found = []
    async for seg in segments:
        if seg.end > start or (seg.base, seg.etag) not in gone:
            break
        found.append(seg)
    return found


def known_epochs(listed: Iterable[Iterable[EpochStart]]) -> tuple[EpochStart, ...]:
    """The first offset of each epoch, from the epochs that manifests list, in the order of the log. Pure."""
    starts: dict[int, int] = {}
    for epochs in listed:
        for start in epochs:
            starts.setdefault(start.epoch, start.start)
    return tuple(EpochStart(epoch=epoch, start=start) for epoch, start in sorted(starts.items()))


async def sweep(lake: Lake, manifests: ManifestBlocks, cut: Cut, gone: Gone) -> list[str]:
    """Records in meta what is gone up to the cut's start, which is no farther than the caller has looked.

    The keys of the objects that meta named before and names no more, to be deleted. Raises Overtaken, EtcdError and
    StoreError.
    """

    async def prepare() -> Draft[list[str]] | None:
        try:
            return await _prepare(lake, manifests, cut, gone)
        except ObjectNotFound:  # a manifest was replaced under the read
            return None

    return await swap(lake.etcd, cut.name, prepare)


async def _prepare(lake: Lake, manifests: ManifestBlocks, cut: Cut, gone: Gone) -> Draft[list[str]]:
    outline = await read_outline(lake, cut.topic, cut.partition)
    before = outline.meta
    if not outline.head_created or not outline.meta_revision:  # the topic is gone
        return Draft(None, [])
    async with aclosing(segments_from(manifests, outline, before.swept)) as segments:
        swept = await first_gone(segments, gone, cut.start)
    end = swept[-1].end if swept else before.swept
    dropped = [chunk for chunk in before.chunks if chunk.last < end]
    if end == before.swept and not dropped:
        return Draft(None, [])
    meta = await _without(lake, manifests, cut, before, dropped)
    freed = meta.freed + sum(seg.size for seg in swept)
    meta = replace(meta, swept=end, freed=freed, gc_seq=meta.gc_seq + 1)
    named = {*(chunk.key for chunk in meta.chunks), meta.epochs_key}
    replaced = [*(chunk.key for chunk in dropped), before.epochs_key]
    txn = build_swap(lake.keys, cut.topic.topic_id, cut.partition, outline, meta)
    return Draft(txn, [key for key in replaced if key and key not in named])


async def _without(
    lake: Lake, manifests: ManifestBlocks, cut: Cut, meta: Meta, dropped: Sequence[ManifestRef]
) -> Meta:
    """Meta without these chunks. Epochs that only they listed go to a new object."""
    if not dropped:
        return meta
    keys = [meta.epochs_key] if meta.epochs_key else []
    listed = [await _epochs(manifests, key) for key in (*keys, *(chunk.key for chunk in dropped))]
    epochs = known_epochs(listed)
    if not keys or listed[0] != epochs:
        meta = replace(meta, epochs_key=await _put_epochs(lake, cut, epochs))
    return replace(meta, chunks=tuple(chunk for chunk in meta.chunks if chunk not in dropped))


async def _epochs(manifests: ManifestBlocks, key: str) -> tuple[EpochStart, ...]:
    async with aclosing(manifests.parts(key)) as parts:
        return (await anext(parts)).epochs


async def _put_epochs(lake: Lake, cut: Cut, epochs: tuple[EpochStart, ...]) -> str:
    key = lake.keys.manifest_key(cut.topic.topic_id, cut.partition, 0, random_uuid().hex)
    body = encode_manifest(Manifest(segments=(), epochs=epochs))
    await lake.store.put(key, [body], condition=IfAbsent())
    return key
