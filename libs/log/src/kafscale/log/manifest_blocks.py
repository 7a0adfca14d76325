"""Reads a log's manifests in blocks, so that not all of its segments are in memory.

A manifest never changes, so both caches stay valid: the most recently read manifests by name, bounded in bytes, and the
digests of all manifests that were read, bounded in number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.manifests import Digest, Line, ManifestPart, ManifestParts, seg_of
from kafscale.log.state import LogState

BLOCK_BYTES: Final = 256 << 10
"""Bytes of a manifest per read: about 2,000 segments, which occupy the event loop for 40 ms."""
DIGESTS_MAX: Final = 200_000


class Ranges(Protocol):
    """What is needed of a store."""

    async def get(self, key: str, *, start: int, end: int) -> bytes: ...


class ManifestBlocks:
    """Reads manifests `block_bytes` at a time, and caches up to `cache_bytes_max` of their bytes."""

    def __init__(self, store: Ranges, *, cache_bytes_max: int = 0, block_bytes: int = BLOCK_BYTES) -> None:
        self._store = store
        self._block_bytes = block_bytes
        self._cache_bytes_max = cache_bytes_max
        self._cached: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._digests: OrderedDict[str, Digest] = OrderedDict()

    async def parts(self, key: str) -> AsyncGenerator[ManifestPart, None]:
        """The parts in log order, at least one. The caller closes it. Raises ObjectNotFound, UnreadableValue."""
        decoder = ManifestParts()
        known = self._cached.get(key)
        if known is not None:
            self._cached.move_to_end(key)
            size = self._block_bytes
            for at in range(0, max(1, len(known)), size):
                yield decoder.feed(known[at : at + size], last=at + size >= len(known))
            return
        at = 0
        while True:
            block = await self._store.get(key, start=at, end=at + self._block_bytes)
            last = len(block) < self._block_bytes
            if last and at == 0:
                self._keep(key, block)
            yield decoder.feed(block, last=last)
            if last:
                return
            at += len(block)

    async def digest(self, key: str) -> Digest:
        """Raises as `parts`."""
        known = self._digests.get(key)
        if known is None:
            known = Digest()
            async with aclosing(self.parts(key)) as parts:
                async for part in parts:
                    known = known.plus(part.digest())
            self._digests[key] = known
            if len(self._digests) > DIGESTS_MAX:
                self._digests.popitem(last=False)
        else:
            self._digests.move_to_end(key)
        return known

    async def listed(self, ref: ManifestRef, first: int) -> AsyncGenerator[Seg, None]:
        """The segments of this manifest that end after `first`. The caller closes it. Raises as `parts`."""
        async with aclosing(self.lines([ref], first, ref.last + 1)) as lines:
            async for line in lines:
                yield seg_of(line)

    async def lines(self, chunks: Sequence[ManifestRef], first: int, end: int) -> AsyncGenerator[Line, None]:
        """The segments of these manifests with offsets of [first, end), not built. The caller closes it."""
        for ref in chunks:
            if ref.last < first or ref.first >= end:
                continue
            async with aclosing(self.parts(ref.key)) as parts:
                async for part in parts:
                    for line in part.lines(first):
                        if line.base >= end:
                            return
                        yield line

    def _keep(self, key: str, body: bytes) -> None:
        """Caches manifests of one block; a larger manifest is read again."""
        if len(body) > self._cache_bytes_max:
            return
        self._cached[key] = body
        self._cached_bytes += len(body)
        while self._cached_bytes > self._cache_bytes_max:
            _, gone = self._cached.popitem(last=False)
            self._cached_bytes -= len(gone)


class SegmentLookup:
    """Looks up segments of a log by base offset, in bounded memory: one block of one manifest.

    With ascending bases each manifest is read at most once. A base below the last one costs another
    read.
    """

    def __init__(self, manifests: ManifestBlocks, state: LogState) -> None:
        self._manifests = manifests
        self._chunks = state.chunks
        self._tail = {seg.base: seg for seg in state.tail}
        self._chunk: ManifestRef | None = None
        self._lines: AsyncGenerator[Line, None] | None = None
        self._line: Line | None = None
        self._asked = -1

    async def at(self, base: int) -> Line | Seg | None:
        """The segment with this base offset. Raises ObjectNotFound (a manifest was replaced), UnreadableValue."""
        if base in self._tail:
            return self._tail[base]
        here = self._chunk
        if here is None or base < self._asked or not here.first <= base <= here.last:
            here = await self._open(base)
        self._asked = base
        while self._lines is not None and (self._line is None or self._line.base < base):
            self._line = await anext(self._lines, None)
            if self._line is None:
                await self.close()
        return self._line if here is not None and self._line is not None and self._line.base == base else None

    async def close(self) -> None:
        if self._lines is not None:
            await self._lines.aclose()
        self._lines = self._line = None

    async def _open(self, base: int) -> ManifestRef | None:
        await self.close()
        self._chunk = next((ref for ref in self._chunks if ref.first <= base <= ref.last), None)
        if self._chunk is not None:
            self._lines = self._manifests.lines([self._chunk], base, self._chunk.last + 1)
        return self._chunk
