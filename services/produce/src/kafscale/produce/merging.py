"""Merges a partition's old manifests. A merge runs in parallel to checkpoints and never delays one.

The laws. No checkpoint waits for a merge. A merge that is done goes into the next checkpoint. If a manifest is
missing, damaged or too slow to arrive, the list stays longer and nothing else happens. Its chunks are set apart for a
while, and the list is merged around them (`plan_merge` has the bound). A merged manifest is uploaded after meta was
read. Meta names it only while meta has the `gc_seq` of that reading and lists the same chunks, because a job that
deletes objects raises `gc_seq` first. A manifest that meta never names is left to the collector of orphans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from kafscale.log.heads import ManifestRef, Meta
from kafscale.log.manifests import (
    Manifest,
    MergePlan,
    decode_manifest,
    encode_manifest,
    merged,
    plan_merge,
    ref_to,
)
from kafscale.produce.log.model import PartitionId
from kafscale.produce.log.put_limit import Rank
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pace import Pace
from kafscale.runtime.clock import Clock
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.objects import IfAbsent, ObjectStore, StoreError
from kafscale.storage.schema import CorruptValue, UnreadableValue

log = structlog.get_logger(__name__)

MERGE_TIMEOUT_S = 120.0
"""For what is read. The PUT waits for its place, and then has its own limit."""
MERGES_AT_ONCE_MAX = 2
"""Of an instance: each holds the segments of what it merges."""
APART_MS = 600_000
"""How long chunks that could not be merged are left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    chunks: tuple[ManifestRef, ...]
    ref: ManifestRef
    gc_seq: int


class Merges:
    """Shared by the partitions of an instance, and bounded by those that it had."""

    def __init__(
        self,
        store: ObjectStore,
        pace: Pace,
        keyspace: Keyspace,
        fresh_id: Callable[[], bytes],
        *,
        begin: Callable[[Coroutine[Any, Any, None]], object],
        clock: Clock,
        metrics: ProduceMetrics,
    ) -> None:
        self._store = store
        self._pace = pace
        self._keyspace = keyspace
        self._fresh_id = fresh_id
        self._begin = begin
        self._clock = clock
        self._metrics = metrics
        self._slots = asyncio.Semaphore(MERGES_AT_ONCE_MAX)
        self._under_way: set[tuple[TopicId, int]] = set()
        self._done: dict[tuple[TopicId, int], _Done] = {}
        self._apart: dict[tuple[TopicId, int], dict[str, int]] = {}  # key of a chunk -> until when, mono_ms

    def into(self, id_: PartitionId, meta: Meta) -> Meta:
        """`meta`, as it was read, with the merge that is done; without one, one is begun if it is due."""
        key = (id_.topic_id, id_.partition)
        done = self._done.get(key)
        if done is not None:
            chunks = _replaced(meta.chunks, done)
            if chunks is not None and meta.gc_seq == done.gc_seq:
                return replace(meta, chunks=chunks)
            del self._done[key]  # it is in the list, or never will be
        if key not in self._under_way:
            plan = plan_merge(meta.chunks, self._set_apart(key))
            if plan is not None:
                self._start(key, self._merge(id_, meta, plan))
        return meta

    def _start(self, key: tuple[TopicId, int], work: Coroutine[Any, Any, None]) -> None:
        self._under_way.add(key)
        try:
            self._begin(work)
        except RuntimeError:  # what a task group says while it shuts down
            work.close()

    def _set_apart(self, key: tuple[TopicId, int]) -> dict[str, int]:
        apart, now_ms = self._apart.get(key, {}), self._clock.now_ms()
        left = {chunk: until_ms for chunk, until_ms in apart.items() if until_ms > now_ms}
        if left:
            self._apart[key] = left
        else:
            self._apart.pop(key, None)
        return left

    async def _merge(self, id_: PartitionId, meta: Meta, plan: MergePlan) -> None:
        key, chunks = (id_.topic_id, id_.partition), meta.chunks[plan.first : plan.first + plan.count]
        try:
            async with self._slots:
                ref = await self._merged(id_, chunks, plan.level)
        except (StoreError, UnreadableValue, TimeoutError) as error:
            self._metrics.merges_failed.inc()
            log.error("manifests not merged", topic=id_.topic, partition=id_.partition, why=repr(error))
            until_ms = self._clock.now_ms() + APART_MS
            self._apart.setdefault(key, {}).update((chunk.key, until_ms) for chunk in chunks)
        else:
            self._done[key] = _Done(chunks=chunks, ref=ref, gc_seq=meta.gc_seq)
        finally:
            self._under_way.discard(key)

    async def _merged(self, id_: PartitionId, chunks: Sequence[ManifestRef], level: int) -> ManifestRef:
        """Read and written in threads: a list of many segments takes long."""
        async with asyncio.timeout(MERGE_TIMEOUT_S):
            parts = [
                await asyncio.to_thread(_read, chunk, await self._store.get(chunk.key)) for chunk in chunks
            ]
        whole = merged(parts)
        first = whole.segments[0].base
        key = self._keyspace.manifest_key(id_.topic_id, id_.partition, first, self._fresh_id().hex())
        body = await asyncio.to_thread(encode_manifest, whole)
        await self._pace.put(key, (body,), condition=IfAbsent(), rank=Rank.BEHIND)
        return ref_to(key, whole, level)


def _read(ref: ManifestRef, body: bytes) -> Manifest:
    manifest = decode_manifest(body)
    if not manifest.segments or ref_to(ref.key, manifest, ref.level) != ref:
        raise CorruptValue("manifest", f"{ref.key} does not list what its reference promises")
    return manifest


def _replaced(chunks: tuple[ManifestRef, ...], done: _Done) -> tuple[ManifestRef, ...] | None:
    """None: the list does not have what was merged, in a row."""
    if done.chunks[0] not in chunks:
        return None
    at = chunks.index(done.chunks[0])
    end = at + len(done.chunks)
    return (*chunks[:at], done.ref, *chunks[end:]) if chunks[at:end] == done.chunks else None
