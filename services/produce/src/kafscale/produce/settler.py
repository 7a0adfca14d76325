"""The shell of settling: reads the slices of a run, and writes their batches as one segment with its index.

The name depends on the base offset alone, so other objects may be there: one of an earlier plan of this epoch that was
never committed, or that of an owner before. Both are replaced with `If-Match` of exactly that etag. A newer epoch's
object means that this owner is fenced; an unknown program's, that a person must look. Two plans never write equal
bytes, because each puts random bits into the reserved fields of the segment and of the index: a late PUT of an earlier
plan can then replace nothing that was committed (docs/protocol/commit.md).

A slice that cannot be read stops its partition's settling until it is restored, unless the log start has passed it:
then a batch without records takes its offsets. So DeleteRecords is the way on after the loss of a bundle. The log start
is read from etcd then, because DeleteRecords does not ask the owner.

The slices of a run are read together, and many small plans are under way at a time. Otherwise an owner of many
partitions would make slices faster than it settles them: read one after another from S3, a run of 24 slices takes most
of a second.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import structlog
from kafscale.log.heads import Seg, decode_meta
from kafscale.log.places import place_of
from kafscale.log.segment import SegmentError
from kafscale.produce.log.flight import stamped
from kafscale.produce.log.model import Buffer, Instant, PartitionId, SettleRun, StepDownReason
from kafscale.produce.log.put_limit import Rank
from kafscale.produce.log.settling import Kept, Rewrite, check_slice, settled_seg
from kafscale.produce.log.uploading import Claimant, FoundObject, claimant_of
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import MEMORY, STORE, ProduceMetrics
from kafscale.produce.pieces import Pieces
from kafscale.produce.puts import Pace
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.failures import without_frames
from kafscale.storage.keys import META_ATTEMPT, META_EPOCH, META_LAST, META_TOPIC_ID, Keyspace, TopicId
from kafscale.storage.objects import (
    IfAbsent,
    IfMatch,
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import together

log = structlog.get_logger(__name__)

TIMEOUT_S = 60.0
"""For what is read. Each PUT waits for its place, and then has its own limit."""
SMALL_BYTES_MAX = 512 << 10
SMALL_AT_ONCE_MAX = 32
LARGE_AT_ONCE_MAX = 4
"""Plans of an instance: each holds the bytes of its segment, whose run has at most that size or more."""
PROBES_AT_ONCE_MAX = 4
LOST_MAX = 10_000
TURNS_MAX = 8
READS_AT_ONCE_MAX = 32
"""Slices that all plans of an instance read from the store."""
_DAMAGE = (SegmentError, ObjectNotFound, PreconditionFailed)
"""These come from reads of slices alone."""


class Settler:
    """Shared by the partitions of an instance."""

    def __init__(
        self,
        etcd: EtcdClient,
        store: ObjectStore,
        pace: Pace,
        keyspace: Keyspace,
        fresh_id: Callable[[], bytes],
        pieces: Pieces,
        metrics: ProduceMetrics,
    ) -> None:
        self._etcd = etcd
        self._store = store
        self._pace = pace
        self._keyspace = keyspace
        self._fresh_id = fresh_id
        self._pieces = pieces
        self._metrics = metrics
        self._small = asyncio.Semaphore(SMALL_AT_ONCE_MAX)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE_MAX)
        self._reads = asyncio.Semaphore(READS_AT_ONCE_MAX)
        self._probes = asyncio.Semaphore(PROBES_AT_ONCE_MAX)
        self._lost: OrderedDict[tuple[TopicId, int], Seg] = (
            OrderedDict()
        )  # what failed the last plan of a partition

    async def carry_out(
        self, id_: PartitionId, writer: PartitionWriter, plan: SettleRun, now: Callable[[], Instant]
    ) -> None:
        """Writes the segment, and reports to the writer what came of it."""
        done = await self.rewrite(id_, plan, writer.kept)
        if done is None:
            writer.plan_failed(plan.plan, now())
        elif isinstance(done, StepDownReason):
            writer.step_down(done, now())
        else:
            writer.run_rewritten(plan.plan, done, now())

    async def rewrite(self, id_: PartitionId, plan: SettleRun, kept: Kept) -> Seg | StepDownReason | None:
        """The new segment; a reason to step down; or None if etcd or the store failed, or a slice cannot be read whose
        records are not deleted."""
        place = {"topic": id_.topic, "partition": id_.partition, "base": plan.run[0].base}
        try:
            await self._probe(id_, plan.run)
            async with self._places(plan.run):
                done = await self._rewrite_past(id_, plan, kept)
            self._lost.pop((id_.topic_id, id_.partition), None)
            return done
        except _DAMAGE as error:
            self._metrics.unreadable_slices.inc()
            log.error("slice damaged", **place, error=repr(without_frames(error)))
        except (StoreError, EtcdError, UnreadableValue, TimeoutError) as error:
            log.warning("settling failed", **place, error=repr(without_frames(error)))
        return None

    async def _probe(self, id_: PartitionId, run: Sequence[Seg]) -> None:
        """Raises while the slice that failed the last plan cannot be read. It takes no place and reads no other slice:
        one lost bundle may have slices of thousands of partitions, and others wait for these places."""
        lost = self._lost.get((id_.topic_id, id_.partition))
        if lost is None or lost not in run:
            return
        async with self._probes, asyncio.timeout(TIMEOUT_S):
            try:
                check_slice(lost, await self._read_one(id_, lost))
            except _DAMAGE as error:
                if await self._log_start(id_) < lost.end:
                    raise
                without_frames(error)

    def _note_lost(self, id_: PartitionId, seg: Seg) -> None:
        self._lost[id_.topic_id, id_.partition] = seg
        if len(self._lost) > LOST_MAX:
            self._lost.popitem(last=False)

    async def _rewrite_past(self, id_: PartitionId, plan: SettleRun, kept: Kept) -> Seg | StepDownReason:
        """Once more, if a slice cannot be read and the log start has passed some of the run."""
        try:
            return await self._rewrite(id_, plan, kept, 0)
        except _DAMAGE as error:
            log_start = await self._log_start(id_)
            if log_start < plan.run[0].end:
                raise
            without_frames(error)
        return await self._rewrite(id_, plan, kept, log_start)

    async def _log_start(self, id_: PartitionId) -> int:
        found = await self._etcd.get(self._keyspace.meta(id_.topic_id, id_.partition))
        return decode_meta(found.value).log_start if found is not None else 0

    def _places(self, run: Sequence[Seg]) -> asyncio.Semaphore:
        return self._small if sum(seg.size for seg in run) <= SMALL_BYTES_MAX else self._large

    async def _rewrite(
        self, id_: PartitionId, plan: SettleRun, kept: Kept, log_start: int
    ) -> Seg | StepDownReason:
        attempt = self._fresh_id()
        async with asyncio.timeout(TIMEOUT_S):
            rewrite, taken = await self._read_run(id_, plan.run, kept, log_start)
        segment = rewrite.segment(attempt)
        index = stamped(segment.index, int.from_bytes(attempt[4:6], "big"))
        base = plan.run[0].base
        metadata = {
            META_TOPIC_ID: id_.topic_id.hex(),
            META_EPOCH: str(plan.epoch),
            META_ATTEMPT: attempt.hex(),
            META_LAST: str(segment.last_offset),
        }
        key = self._keyspace.segment_key(id_.topic, id_.partition, base)
        etag = await self._put(key, segment.body, metadata, plan.epoch)
        if isinstance(etag, StepDownReason):
            return etag
        index_key = self._keyspace.index_key(id_.topic, id_.partition, base)
        index_etag = await self._put(index_key, (index,), metadata, plan.epoch)
        if isinstance(index_etag, StepDownReason):
            return index_etag
        for source, size in taken.items():
            self._metrics.settled_bytes.labels(source).inc(size)
        for seg in rewrite.passed:
            log.warning(
                "lost slice passed over", topic=id_.topic, partition=id_.partition, base=seg.base, end=seg.end
            )
        return settled_seg(plan.run, segment, etag, index_etag, rewrite.passed)

    async def _read_run(
        self, id_: PartitionId, run: Sequence[Seg], kept: Kept, log_start: int
    ) -> tuple[Rewrite, Mapping[str, int]]:
        """From memory as far as the owner has kept the slices, otherwise from the store; and the bytes from each."""
        found = [kept.get(seg) for seg in run]
        missing = [seg for seg, source in zip(run, found, strict=True) if source is None]
        read = iter(await self._read(id_, missing, log_start))
        self._metrics.settle_reads.inc(len(missing))
        sources = [next(read) if source is None else source for source in found]
        rewrite = Rewrite(run, sources, log_start)
        try:
            await self._pieces.run(rewrite.steps())
        except SegmentError:
            self._note_lost(id_, rewrite.at)
            raise
        stored_bytes = sum(seg.size for seg in missing if seg not in rewrite.passed)
        memory_bytes = sum(seg.size for seg in run if seg not in missing)
        return rewrite, {MEMORY: memory_bytes, STORE: stored_bytes}

    async def _read(self, id_: PartitionId, slices: Sequence[Seg], log_start: int) -> list[Buffer | None]:
        """The slices, in their order. None: one below the log start is lost."""
        return await together(self._read_or_pass(id_, seg, log_start) for seg in slices)

    async def _read_or_pass(self, id_: PartitionId, seg: Seg, log_start: int) -> Buffer | None:
        try:
            return await self._read_one(id_, seg)
        except (ObjectNotFound, PreconditionFailed):
            if seg.end > log_start:
                self._note_lost(id_, seg)
                raise
            return None

    async def _read_one(self, id_: PartitionId, seg: Seg) -> Buffer:
        async with self._reads:
            return await place_of(self._keyspace, id_.topic, id_.partition, seg).read(self._store)

    async def _put(
        self, key: str, body: Sequence[Buffer], metadata: Mapping[str, str], epoch: int
    ) -> str | StepDownReason:
        """The etag. Each turn of the loop needs another writer's object in between, and each request has a deadline.
        A store that takes no condition for fulfilled gets a few turns, and the plan fails."""
        condition: IfAbsent | IfMatch = IfAbsent()
        for _ in range(TURNS_MAX):
            try:
                return await self._pace.put(
                    key, body, condition=condition, metadata=metadata, rank=Rank.BEHIND
                )
            except (PreconditionFailed, ObjectNotFound):
                async with asyncio.timeout(TIMEOUT_S):
                    info = await self._store.head(key)
            if info is None:
                condition = IfAbsent()
                continue
            found = FoundObject.from_metadata(info.etag, info.size, info.metadata)
            match claimant_of(found, bytes.fromhex(metadata[META_ATTEMPT]), epoch):
                case Claimant.ME:
                    return found.etag
                case Claimant.NEWER:
                    return StepDownReason.FENCED
                case Claimant.FOREIGN:
                    return StepDownReason.FOREIGN_OBJECT
                case _:  # never committed: of an owner before, or of a plan of this one
                    condition = IfMatch(found.etag)
        raise StoreUnavailable(key, f"{TURNS_MAX} conditional PUTs have failed")
