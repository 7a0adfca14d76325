"""The objects of a checkpoint: manifest and producer snapshot.

The law: meta's revision is read before any upload begins, and every object has a fresh name. The
transaction that refers to them compares that revision, so a collector of orphans that raised it in
between makes the transaction fail instead of leaving a reference to a deleted object. What `merging` has
merged meanwhile goes into the same list of manifests, by a law of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog
from kafscale.log.heads import ManifestRef, Meta, check_meta, decode_head, decode_meta, encode_meta
from kafscale.log.manifests import Manifest, encode_manifest, ref_to
from kafscale.produce.log.model import Instant, MetaWrite, PartitionId, StepDownReason, TakeCheckpoint
from kafscale.produce.log.producers import SnapshotWork
from kafscale.produce.log.put_limit import Rank
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.merging import Merges
from kafscale.produce.pace import Pace
from kafscale.produce.pieces import Pieces
from kafscale.storage.etcd.client import EtcdClient, EtcdError, Range
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import IfAbsent, ObjectStore, StoreError
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)

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
