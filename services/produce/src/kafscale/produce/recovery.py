"""From a claimed head to the state that idempotence needs: snapshot, then the batch headers after it.

The law: only committed segments are read, by the etags that the head or a manifest names, and in
offset order; whatever lies above `next` is never looked at. The bytes themselves are checked, because
state replayed from a damaged segment would accept duplicates.

Partitions that are claimed together share the reads of their bundles. After a crash an instance claims many partitions
whose tails name the same bundles. A GET reads a block of BLOCK_BYTES, not a slice, so the partitions after the first
one find theirs in memory (`BundleBlocks`). Most bundles have one block. Callers that need a block at the same time
wait for one GET. At most KEPT_BYTES_MAX are kept, and nothing after KEPT_S without a read. A block is named by the
etag of its bundle, so it is never out of date. A block may be damaged: its slices are checked.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from kafscale.log.heads import Head, Meta, Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.places import Place, place_of
from kafscale.log.segment import SegmentError
from kafscale.log.segment_view import verify_committed
from kafscale.log.segments import segments_from
from kafscale.log.snapshots import ProducerSnapshot, decode_snapshot
from kafscale.log.state import LogState
from kafscale.log.transactions import stored_batches
from kafscale.produce.log.model import PartitionId
from kafscale.produce.log.producers import ProducerBounds, ProducerTable
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import WireError

BLOCK_BYTES: Final = 1 << 20
KEPT_BYTES_MAX: Final = 64 << 20
KEPT_S: Final = 30.0


class _Block(NamedTuple):
    key: str
    etag: str | None
    number: int

    @property
    def place(self) -> Place:
        """The last block of a bundle ends where the bundle ends."""
        return Place(self.key, self.etag, self.number * BLOCK_BYTES, (self.number + 1) * BLOCK_BYTES)


class _Turn:
    """Callers that need one block: the first reads it, the others wait and find it."""

    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.callers = 0
        self.lock = asyncio.Lock()


class BundleBlocks:
    """`get` reads a place from the store; its errors reach each caller that waits for the block."""

    def __init__(self, get: Callable[[Place], Awaitable[bytes]]) -> None:
        self._get = get
        self._kept: OrderedDict[_Block, bytes] = OrderedDict()  # the least recently used first
        self._kept_bytes = 0
        self._turns: dict[_Block, _Turn] = {}
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    async def read(self, place: Place) -> bytes:
        """The bytes of a slice."""
        assert place.end is not None, place
        numbers = range(place.start // BLOCK_BYTES, (place.end - 1) // BLOCK_BYTES + 1)
        found = [await self._block(_Block(place.key, place.etag, number)) for number in numbers]
        origin = numbers.start * BLOCK_BYTES
        data = found[0] if len(found) == 1 else b"".join(found)
        return data[place.start - origin : place.end - origin]

    def forget(self, place: Place) -> None:
        """What was read of this object may be damaged."""
        for block in [block for block in self._kept if (block.key, block.etag) == (place.key, place.etag)]:
            self._kept_bytes -= len(self._kept.pop(block))

    async def _block(self, block: _Block) -> bytes:
        turn = self._turns.setdefault(block, _Turn())
        turn.callers += 1
        try:
            async with turn.lock:
                data = self._kept.get(block)
                if data is None:
                    data = await self._get(block.place)
                self._keep(block, data)
                return data
        finally:
            turn.callers -= 1
            if not turn.callers:
                del self._turns[block]

    def _keep(self, block: _Block, data: bytes) -> None:
        if self._kept.pop(block, None) is None:
            self._kept_bytes += len(data)
        self._kept[block] = data
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(KEPT_S, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._kept.clear()
        self._kept_bytes = 0


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
        table.hold(frozenset(each.producer_id for each in head.open))
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
            table.replay(stored_batches(body), seg.created_ms)
        except (SegmentError, WireError) as error:
            self._bundles.forget(place)  # the next attempt reads the store
            raise LogDamaged(place.name, str(error)) from error


class _ManifestReads:
    """The store as `ManifestBlocks` needs it, with the bounds and the errors of a recovery."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    async def get(self, key: str, *, start: int, end: int) -> bytes:
        return await self._recovery.manifest_block(Place(key, None, start, end))
