"""Which committed segments hold an offset: the head's tail, and before it the manifests.

Manifests are immutable and uniquely named, so what is cached never goes stale; the cache is bounded by
the number of segments it lists. Concurrent readers of one manifest share its GET.
"""

import asyncio
import bisect
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from operator import attrgetter
from typing import Final

from kafscale.fetch.errors import OffsetGap
from kafscale.fetch.logstate import LogState
from kafscale.fetch.plan import choose, expected_bytes, first_at, unbroken
from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.manifests import Manifest, decode_manifest, epochs_ref
from kafscale.storage.failures import without_frames
from kafscale.storage.objects import ObjectStore, StoreError, StoreUnavailable
from kafscale.storage.schema import CorruptValue, UnreadableValue

DECODE_IN_THREAD: Final = 2_000
"""A manifest of more segments than this is decoded in a thread."""
MANIFESTS_AT_ONCE: Final = 4
"""A new manifest lists 16 segments, and a reader that catches up gets more than that in one answer."""
_last = attrgetter("last")


class ManifestCache:
    """`tasks` owns the loads; `segments_max` bounds what is kept."""

    def __init__(
        self, store: ObjectStore, tasks: asyncio.TaskGroup, *, segments_max: int, timeout_ms: int
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._segments_max = segments_max
        self._timeout_ms = timeout_ms
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Manifest]] = {}
        self._segments = 0
        self.loads = 0

    def peek(self, ref: ManifestRef) -> Manifest | None:
        manifest = self._manifests.get(ref.key)
        if manifest is not None:
            self._manifests.move_to_end(ref.key)
        return manifest

    async def get(self, ref: ManifestRef) -> Manifest:
        """Raises StoreError, or UnreadableValue when the object is not what the reference says."""
        manifest = self.peek(ref)
        return manifest if manifest is not None else await asyncio.shield(self.begin(ref))

    def begin(self, ref: ManifestRef) -> asyncio.Future[Manifest]:
        """Start to load one that is not in memory, or join a load that is under way."""
        loading = self._loading.get(ref.key)
        if loading is None:
            loading = self._loading[ref.key] = asyncio.get_running_loop().create_future()
            self._tasks.create_task(self._fill(ref, loading))
        return loading

    async def _fill(self, ref: ManifestRef, loading: asyncio.Future[Manifest]) -> None:
        try:
            manifest = await self._load(ref)
        except (StoreError, UnreadableValue) as error:
            loading.set_exception(without_frames(error))
            loading.exception()  # retrieved here, as all callers may have left
        else:
            self._keep(ref, manifest)
            loading.set_result(manifest)
        finally:
            del self._loading[ref.key]
            loading.cancel()

    async def _load(self, ref: ManifestRef) -> Manifest:
        self.loads += 1
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                data = await self._store.get(ref.key)
        except TimeoutError:
            raise StoreUnavailable(ref.key, f"no answer within {self._timeout_ms} ms") from None
        if ref.count > DECODE_IN_THREAD:
            manifest = await asyncio.to_thread(decode_manifest, data)
        else:
            manifest = decode_manifest(data)
        _check(ref, manifest)
        return manifest

    def _keep(self, ref: ManifestRef, manifest: Manifest) -> None:
        self._manifests[ref.key] = manifest
        self._segments += len(manifest.segments)
        while self._segments > self._segments_max and len(self._manifests) > 1:
            _, dropped = self._manifests.popitem(last=False)
            self._segments -= len(dropped.segments)


class Locator:
    """Raises what ManifestCache.get raises. Expects states that are not torn."""

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests

    def choose_now(
        self, state: LogState, offset: int, limit_bytes: int, *, count_max: int
    ) -> list[Seg] | None:
        """As `choose`, from what is in memory; None when a manifest must be read first."""
        segs: list[Seg] = []
        for ref in _refs_from(state, offset):
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
        for ref in _refs_from(state, offset)[:MANIFESTS_AT_ONCE]:
            if self._manifests.peek(ref) is None:
                self._manifests.begin(ref)

    async def load_for(self, state: LogState, offset: int, limit_bytes: int, *, count_max: int) -> list[Seg]:
        """As `choose`, reading the manifests it needs: the first alone, which is mostly enough."""
        segs: list[Seg] = []
        refs = _refs_from(state, offset)
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

    async def from_offset(self, state: LogState, offset: int) -> AsyncIterator[Seg]:
        """Every segment from the one that holds `offset` on, in order. Raises OffsetGap instead of skipping one."""
        reached = offset
        for ref in _refs_from(state, offset):
            manifest = await self._manifests.get(ref)
            for seg in unbroken(manifest.segments[first_at(manifest.segments, reached) :], reached):
                yield seg
                reached = seg.end
        for seg in unbroken([seg for seg in state.tail if seg.last >= reached], reached):
            yield seg
            reached = seg.end
        if reached < state.next:
            raise OffsetGap(due=reached, found=None)

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


def _check(ref: ManifestRef, manifest: Manifest) -> None:
    segments = manifest.segments
    listed = (segments[0].base, segments[-1].last, len(segments)) if segments else (0, -1, 0)
    if listed != (ref.first, ref.last, ref.count):
        raise CorruptValue("manifest", f"{ref.key} does not list the segments its reference promises")


def _refs_from(state: LogState, offset: int) -> Sequence[ManifestRef]:
    if offset >= state.tail_start:
        return ()
    return state.chunks[bisect.bisect_left(state.chunks, offset, key=_last) :]


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
