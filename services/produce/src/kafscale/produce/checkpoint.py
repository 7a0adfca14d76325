"""The objects of a checkpoint: manifest and producer snapshot; and merges of a partition's old manifests.

The law of a checkpoint: meta's revision is read before any upload begins, and every object has a fresh name. The
transaction that refers to them compares that revision, so a collector of orphans that raised it in between makes the
transaction fail instead of leaving a reference to a deleted object.

The laws of a merge. It runs in parallel to checkpoints, and no checkpoint waits for it. A merge that is done goes into
the next checkpoint. If a manifest is missing, damaged or too slow to arrive, the list stays longer and nothing else
happens. Its chunks are set apart for a while, and the list is merged around them (`plan_merge` has the bound). A merged
manifest is uploaded after meta was read. Meta names it only while meta has the `gc_seq` of that reading and lists the
same chunks, because a job that deletes objects raises `gc_seq` first. A manifest that meta never names is left to the
collector of orphans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from kafscale.log.heads import ManifestRef, Meta, check_meta, decode_head, decode_meta, encode_meta
from kafscale.log.manifests import (
    Manifest,
    MergePlan,
    decode_manifest,
    encode_manifest,
    merged,
    plan_merge,
    ref_to,
)
from kafscale.produce.log.model import Instant, MetaWrite, PartitionId, StepDownReason, TakeCheckpoint
from kafscale.produce.log.producers import SnapshotWork
from kafscale.produce.log.put_limit import Rank
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pieces import Pieces
from kafscale.produce.puts import Pace
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import EtcdClient, EtcdError, Range
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


DROP_TIMEOUT_S = 20.0
DROPS_AT_ONCE_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """What the writer needs to make the transaction."""

    snap_key: str
    meta: MetaWrite
    log_start: int


class Checkpointer:
    """Shared by the partitions of an instance."""

    def __init__(
        self,
        etcd: EtcdClient,
        store: ObjectStore,
        pace: Pace,
        keyspace: Keyspace,
        fresh_id: Callable[[], bytes],
        pieces: Pieces,
        merges: Merges,
    ) -> None:
        self._etcd = etcd
        self._store = store
        self._pace = pace
        self._keyspace = keyspace
        self._fresh_id = fresh_id
        self._pieces = pieces
        self._merges = merges
        self._drops = asyncio.Semaphore(DROPS_AT_ONCE_MAX)

    async def carry_out(
        self, id_: PartitionId, writer: PartitionWriter, plan: TakeCheckpoint, now: Callable[[], Instant]
    ) -> None:
        """Writes the objects, and reports to the writer what came of it."""
        done = await self.upload(id_, plan)
        if done is None:
            writer.plan_failed(plan.plan, now())
        elif isinstance(done, StepDownReason):
            writer.step_down(done, now())
        else:
            writer.checkpoint_ready(plan.plan, done.snap_key, done.meta, now())
            writer.moved_log_start(done.log_start)

    async def upload(self, id_: PartitionId, plan: TakeCheckpoint) -> Uploaded | StepDownReason | None:
        """None when etcd or the store failed: nothing refers to what was uploaded. DAMAGED: meta cannot be read,
        and without it the tail fills up until nothing can be committed any more."""
        try:
            return await self._upload(id_, plan)
        except (EtcdError, StoreError, TimeoutError) as error:
            log.warning("checkpoint failed", topic=id_.topic, partition=id_.partition, error=repr(error))
            return None
        except UnreadableValue as error:
            log.error("meta cannot be read", topic=id_.topic, partition=id_.partition, why=str(error))
            return StepDownReason.DAMAGED

    async def _upload(self, id_: PartitionId, plan: TakeCheckpoint) -> Uploaded:
        place = (id_.topic_id, id_.partition)
        heads, read = await self._etcd.ranges(
            [Range(self._keyspace.head(*place)), Range(self._keyspace.meta(*place))]
        )
        meta = decode_meta(read.kvs[0].value) if read.kvs else Meta()
        revision = read.kvs[0].mod_revision if read.kvs else 0
        if heads.kvs:
            check_meta(decode_head(heads.kvs[0].value).tail, meta)
        snap_key = await self._put_snapshot(id_, plan.snapshot)
        if plan.manifest is not None:
            meta = await self._extend(id_, meta, plan.manifest)
        write = MetaWrite(expected_revision=revision, value=encode_meta(meta))
        return Uploaded(snap_key=snap_key, meta=write, log_start=meta.log_start)

    async def _put_snapshot(self, id_: PartitionId, snapshot: SnapshotWork) -> str:
        await self._pieces.run(snapshot.steps())
        data = snapshot.data()
        if data is None:
            return ""  # nothing to remember: recovery starts from an empty table at the same offset
        key = self._keyspace.snapshot_key(
            id_.topic_id, id_.partition, snapshot.offset, self._fresh_id().hex()
        )
        await self._put(key, data)
        return key

    async def _extend(self, id_: PartitionId, meta: Meta, manifest: Manifest) -> Meta:
        ref = await self._put_manifest(id_, manifest)
        chunks = (*self._merges.into(id_, meta).chunks, ref)
        return replace(meta, chunks=chunks, manifest_end=manifest.segments[-1].end)

    async def _put_manifest(self, id_: PartitionId, manifest: Manifest) -> ManifestRef:
        first = manifest.segments[0].base
        key = self._keyspace.manifest_key(id_.topic_id, id_.partition, first, self._fresh_id().hex())
        await self._put(key, encode_manifest(manifest))
        return ref_to(key, manifest)

    async def _put(self, key: str, data: bytes) -> None:
        """Ahead of segments: commits may wait for this checkpoint. etcd and each PUT have their own time limits."""
        await self._pace.put(key, (data,), condition=IfAbsent(), rank=Rank.AHEAD)

    async def drop_snapshot(self, key: str) -> None:
        """Delete a snapshot that a committed head no longer names. Best effort: a collector follows."""
        try:
            async with self._drops, asyncio.timeout(DROP_TIMEOUT_S):
                await self._store.delete(key)
        except (StoreError, TimeoutError) as error:
            log.info("old snapshot left behind", key=key, error=repr(error))
