"""From a claimed head to the state that idempotence needs: snapshot, then the batch headers after it.

The law: only committed segments are read, by the etags that the head or a manifest names, and in
offset order; whatever lies above `next` is never looked at. The bytes themselves are checked, for
state replayed from a damaged segment would accept duplicates.
Partitions that are claimed together share the reads of their bundles.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from kafscale.log.committed import verify_committed
from kafscale.log.heads import Head, Meta, Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.places import Place, place_of
from kafscale.log.segment import SegmentError, walk_batches
from kafscale.log.segments import segments_from
from kafscale.log.snapshots import ProducerSnapshot, decode_snapshot
from kafscale.log.state import LogState
from kafscale.produce.bundle_blocks import BundleBlocks
from kafscale.produce.log.model import PartitionId
from kafscale.produce.log.producers import ProducerBounds, ProducerTable
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.records import read_batch_header

GETS_AT_ONCE_MAX = 32
"""Of the whole instance."""
READ_AHEAD_MAX = 8
"""Of one partition: with segments of 4 MiB, what one recovery may hold in memory."""
GET_TIMEOUT_S = 20.0
MANIFEST_BLOCK_BYTES = 32 << 10
"""About 250 segments, which occupy the event loop for 5 ms."""


class LogDamaged(UnreadableValue):
    """A committed object is missing or is not the one that was committed: a person must look.

    Or the head or meta that named it has moved on since it was read: look at them again first.
    """

    def __init__(self, key: str, cause: str) -> None:
        super().__init__(f"committed object {key}: {cause}")
        self.key = key


class Recovery:
    """Loads producer tables. Raises StoreError while the store fails, LogDamaged when it lies."""

    def __init__(self, store: ObjectStore, keyspace: Keyspace, bounds: ProducerBounds | None = None) -> None:
        self._store = store
        self._keyspace = keyspace
        self._bounds = bounds
        self._gets = asyncio.Semaphore(GETS_AT_ONCE_MAX)
        self._bundles = BundleBlocks(self._read)

    async def producers(self, id_: PartitionId, head: Head, meta: Meta) -> ProducerTable:
        snapshot = ProducerSnapshot(offset=head.snap_offset)
        if head.snap_key:
            snapshot = await self._snapshot(head.snap_key)
        table = await asyncio.to_thread(ProducerTable.restore, snapshot, self._bounds)
        start = head.snap_offset
        known_gone = meta.swept  # an object with such a name now was never committed
        listed = await self._listed(LogState(head=head, meta=meta), start)
        segments = [seg for seg in listed if seg.end > known_gone]
        await self._replay(id_, segments, meta.log_start, table)
        return table

    async def _listed(self, state: LogState, start: int) -> list[Seg]:
        """The tail; and the manifests, should a snapshot be older than what they cover."""
        manifests = ManifestBlocks(_ManifestReads(self), block_bytes=MANIFEST_BLOCK_BYTES)
        async with aclosing(segments_from(manifests, state, start)) as segments:
            return [seg async for seg in segments]

    async def _snapshot(self, key: str) -> ProducerSnapshot:
        body = await self._get(Place(key, None))
        try:
            return await asyncio.to_thread(decode_snapshot, body)
        except UnreadableValue as error:
            raise LogDamaged(key, str(error)) from error

    async def _replay(
        self, id_: PartitionId, segments: Sequence[Seg], log_start: int, table: ProducerTable
    ) -> None:
        """In order; GETs run ahead."""
        waiting = deque(segments)
        ahead: deque[tuple[Seg, asyncio.Task[bytes | None]]] = deque()
        try:
            while waiting or ahead:
                while waiting and len(ahead) < READ_AHEAD_MAX:
                    seg = waiting.popleft()
                    get = self._get_deleted if seg.end <= log_start else self._get
                    ahead.append((seg, asyncio.create_task(get(self._place(id_, seg)))))
                body = await ahead[0][1]
                seg, _ = ahead.popleft()
                if body is not None:
                    self._apply(self._place(id_, seg), body, seg, table)
        finally:
            for _, get_ahead in ahead:
                get_ahead.cancel()
            await asyncio.gather(*[get_ahead for _, get_ahead in ahead], return_exceptions=True)

    def _place(self, id_: PartitionId, seg: Seg) -> Place:
        return place_of(self._keyspace, id_.topic, id_.partition, seg)

    async def _get_deleted(self, place: Place) -> bytes | None:
        """A segment below the log start. Its records are deleted, but a producer may still offer them again: it
        is read as long as it is there, and None once it is gone."""
        try:
            return await self._get(place)
        except LogDamaged:
            async with self._gets, asyncio.timeout(GET_TIMEOUT_S):
                if await self._store.head(place.key) is not None:
                    raise
            return None

    async def _get(self, place: Place) -> bytes:
        return await self._found(place, self._read if place.end is None else self._bundles.read)

    async def manifest_block(self, place: Place) -> bytes:
        return await self._found(place, self._read)

    async def _found(self, place: Place, read: Callable[[Place], Awaitable[bytes]]) -> bytes:
        try:
            return await read(place)
        except ObjectNotFound as error:
            raise LogDamaged(place.name, "it is not there") from error
        except PreconditionFailed as error:
            raise LogDamaged(place.name, f"its etag is not {place.etag}") from error

    async def _read(self, place: Place) -> bytes:
        async with self._gets, asyncio.timeout(GET_TIMEOUT_S):
            return await place.read(self._store)

    def _apply(self, place: Place, body: bytes, seg: Seg, table: ProducerTable) -> None:
        try:
            verify_committed(seg, body)
            table.replay(
                (read_batch_header(body, span.position) for span in walk_batches(body)), seg.created_ms
            )
        except SegmentError as error:
            self._bundles.forget(place)  # the next attempt reads the store
            raise LogDamaged(place.name, str(error)) from error


class _ManifestReads:
    """The store as `ManifestBlocks` needs it, with the bounds and the errors of a recovery."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    async def get(self, key: str, *, start: int, end: int) -> bytes:
        return await self._recovery.manifest_block(Place(key, None, start, end))
