"""Manifests in memory, decoded, for readers that come again and again and must not wait.

Manifests are immutable and uniquely named, so what is cached never goes stale. The cache is bounded by the number of
segments it lists. Concurrent readers of one manifest share its GET. `manifest_blocks` reads manifests of any size in
little memory.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import Final

from kafscale.log.heads import ManifestRef, Seg
from kafscale.log.manifests import Manifest, decode_manifest
from kafscale.log.segments import first_at
from kafscale.storage.failures import without_frames
from kafscale.storage.objects import ObjectStore, StoreError, StoreUnavailable
from kafscale.storage.schema import CorruptValue, UnreadableValue

DECODE_IN_THREAD: Final = 2_000
"""A manifest of more segments than this is decoded in a thread."""


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

    async def listed(self, ref: ManifestRef, first: int) -> AsyncGenerator[Seg, None]:
        """The segments of this manifest that end after `first`. Raises as `get`."""
        segs = (await self.get(ref)).segments
        for seg in segs[first_at(segs, first) :]:
            yield seg

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


def _check(ref: ManifestRef, manifest: Manifest) -> None:
    segments = manifest.segments
    listed = (segments[0].base, segments[-1].last, len(segments)) if segments else (0, -1, 0)
    if listed != (ref.first, ref.last, ref.count):
        raise CorruptValue("manifest", f"{ref.key} does not list the segments its reference promises")
