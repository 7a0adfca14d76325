"""Reads a log's manifests in blocks, so that not all of its segments are in memory.

A manifest never changes, so both caches stay valid: the most recently read manifests by name, bounded in bytes, and the
digests of all manifests that were read, bounded in number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

from kafscale.lake.catalog import NEVER, Outline
from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.manifests import Digest, Line, ManifestPart, ManifestParts, seg_of
from kafscale.storage.objects import ObjectStore

BLOCK_BYTES: Final = 256 << 10
"""Bytes of a manifest per read: about 2,000 segments, which occupy the event loop for 40 ms."""
DIGESTS_MAX: Final = 200_000


class Manifests:
    """Reads manifests, and caches up to `cache_bytes_max` of their bytes."""

    def __init__(self, store: ObjectStore, *, cache_bytes_max: int = 0) -> None:
        self._store = store
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
            for at in range(0, max(1, len(known)), BLOCK_BYTES):
                yield decoder.feed(known[at : at + BLOCK_BYTES], last=at + BLOCK_BYTES >= len(known))
            return
        at = 0
        while True:
            block = await self._store.get(key, start=at, end=at + BLOCK_BYTES)
            last = len(block) < BLOCK_BYTES
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

    async def listed(self, chunks: Sequence[ManifestRef], first: int, end: int) -> AsyncIterator[Seg]:
        """The segments of these chunks that contain offsets of [first, end)."""
        async with aclosing(self.lines(chunks, first, end)) as lines:
            async for line in lines:
                yield seg_of(line)

    async def segments(self, outline: Outline, first: int) -> AsyncGenerator[Seg, None]:
        """The log's segments that end after `first`, in its order. The caller closes it."""
        async for seg in self.listed(outline.meta.chunks, first, NEVER):
            yield seg
        for seg in outline.tail:
            if seg.end > first:
                yield seg

    async def lines(self, chunks: Sequence[ManifestRef], first: int, end: int) -> AsyncGenerator[Line, None]:
        """The same without building the segments. The caller closes it."""
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
