"""Looks up segments of a log by base offset, in bounded memory: one block of one manifest."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from kafscale.lake.catalog import Outline
from kafscale.lake.listing import Manifests
from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.manifests import Line


class SegmentLookup:
    """With ascending bases each manifest is read at most once. A base below the last one costs another read."""

    def __init__(self, manifests: Manifests, outline: Outline) -> None:
        self._manifests = manifests
        self._chunks = outline.meta.chunks
        self._tail = {seg.base: seg for seg in outline.tail}
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
