"""Which committed segments an answer needs: those of the head's tail, and before it those of the manifests."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Final

from kafscale.fetch.plan import choose, expected_bytes
from kafscale.log.heads import Aborted, Seg
from kafscale.log.isolation import AbortedSearch
from kafscale.log.manifest_cache import ManifestCache
from kafscale.log.manifests import Manifest, epochs_ref
from kafscale.log.segments import OffsetGap, first_at, manifests_from, segments_from
from kafscale.log.state import LogState

MANIFESTS_AT_ONCE: Final = 4
"""A new manifest lists 16 segments, and a reader that catches up gets more than that in one answer."""


class Locator:
    """Raises what ManifestCache.get raises. Expects states that are not torn."""

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests

    def choose_now(
        self, state: LogState, offset: int, limit_bytes: int, *, count_max: int
    ) -> list[Seg] | None:
        """As `choose`, from what is in memory; None when a manifest must be read first."""
        segs: list[Seg] = []
        for ref in manifests_from(state, offset):
            manifest = self._manifests.peek(ref)
            if manifest is None:
                return None
            segs += _some(manifest, offset, count_max - len(segs))
            if _enough(segs, offset, limit_bytes, count_max):
                break
        else:
            segs += _tail_after(state, segs)
        return choose(segs, offset, limit_bytes, count_max=count_max)

    def warm(self, state: LogState, offset: int) -> None:
        """Start to load the next manifests concurrently: one after the other would cost a round trip each."""
        for ref in manifests_from(state, offset)[:MANIFESTS_AT_ONCE]:
            if self._manifests.peek(ref) is None:
                self._manifests.begin(ref)

    async def load_for(self, state: LogState, offset: int, limit_bytes: int, *, count_max: int) -> list[Seg]:
        """As `choose`, reading the manifests it needs: the first alone, which is mostly enough."""
        segs: list[Seg] = []
        refs = manifests_from(state, offset)
        for ref in refs:
            manifest = await self._manifests.get(ref)
            segs += _some(manifest, offset, count_max - len(segs))
            if _enough(segs, offset, limit_bytes, count_max):
                break
            if ref is refs[0]:
                self.warm(state, ref.last + 1)
        else:
            segs += _tail_after(state, segs)
        return choose(segs, offset, limit_bytes, count_max=count_max)

    def aborted_now(self, state: LogState, first: int, end: int) -> tuple[Aborted, ...] | None:
        """The aborted transactions of [first, end), from what is in memory; None when a manifest must be read first."""
        search, reached = AbortedSearch(first, end), first
        for ref in manifests_from(state, first):
            manifest = self._manifests.peek(ref)
            if manifest is None:
                return None
            for seg in islice(manifest.segments, first_at(manifest.segments, first), None):
                if search.take(seg):
                    return search.found
            reached = ref.last + 1
        for seg in state.tail[first_at(state.tail, reached) :]:
            if search.take(seg):
                break
        return search.found if search.done else None

    async def aborted(self, state: LogState, first: int, end: int) -> tuple[Aborted, ...]:
        """The same, reading the manifests that it needs."""
        search = AbortedSearch(first, end)
        async with aclosing(segments_from(self._manifests, state, first)) as segs:
            async for seg in segs:
                if search.take(seg):
                    break
        if not search.done:
            raise OffsetGap(due=end, found=None)
        return search.found

    def segments_from(self, state: LogState, offset: int) -> AsyncGenerator[Seg, None]:
        return segments_from(self._manifests, state, offset)

    async def epochs(self, state: LogState) -> list[tuple[int, int]]:
        """(epoch, first offset) of every epoch that wrote records, oldest first."""
        starts: dict[int, int] = {}
        head_epochs = state.head.epochs if state.head else ()
        inline_from = head_epochs[0].start if head_epochs else state.next
        gone = [epochs_ref(state.meta.epochs_key)] if state.meta.epochs_key else []
        for ref in (*gone, *state.chunks):
            if ref.first >= inline_from:
                break
            manifest = await self._manifests.get(ref)
            for start in manifest.epochs:
                starts.setdefault(start.epoch, start.start)
        for seg in state.tail:  # of more epochs than the head lists, where each wrote little
            if seg.base < inline_from:
                starts.setdefault(seg.epoch, seg.base)
        for start in head_epochs:
            starts.setdefault(start.epoch, start.start)
        return sorted(starts.items())


def _tail_after(state: LogState, segs: Sequence[Seg]) -> tuple[Seg, ...]:
    """If only the meta's half of a checkpoint is known, some segments are listed in both."""
    if not segs:
        return state.tail
    end = segs[-1].end
    return tuple(seg for seg in state.tail if seg.base >= end)


def _some(manifest: Manifest, offset: int, count_max: int) -> tuple[Seg, ...]:
    """The manifest's first segments from `offset` on: merged manifests list tens of thousands."""
    first = first_at(manifest.segments, offset)
    return manifest.segments[first : first + count_max]


def _enough(segs: Sequence[Seg], offset: int, limit_bytes: int, count_max: int) -> bool:
    if len(segs) >= count_max:
        return True
    return sum(expected_bytes(seg, offset) for seg in segs) >= limit_bytes
