"""The orphans of one log, portion by portion; see `orphans` for the laws.

Only the orphans of one portion are kept in memory: the store lists objects in the order of offsets, and so do the
manifests. A manifest that is replaced during the search costs one more read of meta.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafscale.lake.catalog import Lake, Outline, read_outline
from kafscale.lake.resume import Partition
from kafscale.log.heads import check_meta, decode_head, settled_end
from kafscale.log.manifest_blocks import ManifestBlocks, SegmentLookup
from kafscale.log.meta_swap import Draft, Overtaken, build_swap, swap
from kafscale.storage.etcd.client import Range, RangeResult, TxnResult
from kafscale.storage.etcd.swap import TRIES_MAX
from kafscale.storage.keys import OWN_TREE, index_beside
from kafscale.storage.objects import ObjectInfo, ObjectNotFound

LISTED_MAX: Final = 100_000
"""Objects listed for one portion, orphans or not. It bounds how much of a long log a killed run repeats."""
COMPACTED: Final = "compacted"
UNIQUE: Final = ("manifest", "producers", COMPACTED)
"""Trees below @kafscale that are kept per topic id and partition."""
BASE_DIGITS: Final = 20
STRANGE_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """`upto`: all objects up to this key were checked; empty: all objects of the log."""

    found: tuple[ObjectInfo, ...]
    upto: str


class Search:
    """One search of a log. `strange` and `left` count what was left, see `orphans.OrphanReport`."""

    def __init__(
        self, lake: Lake, manifests: ManifestBlocks, place: Partition, *, objects_max: int, dry: bool = False
    ) -> None:
        self._lake = lake
        self._manifests = manifests
        self._topic, self._partition = place
        self._objects_max = objects_max
        self._dry = dry
        self._outline = Outline(topic=self._topic, partition=self._partition)
        self._walk = SegmentLookup(manifests, self._outline)
        self._unique_trees = tuple(self._tree(name) for name in UNIQUE)
        self._compacted_tree = self._tree(COMPACTED)
        self._names: frozenset[str] = frozenset()
        self._moved = False
        """ManifestBlocks were replaced since the portion started."""
        self.left = 0
        self.strange = 0
        self.strange_names: list[str] = []

    async def portions(self, behind: str) -> AsyncGenerator[Portion, None]:
        """Starts after this key. Raises Overtaken, UnreadableValue, EtcdError and StoreError. The caller closes it."""
        await self._look_again()
        self._moved = False
        if not self._outline.head_created:  # nothing was ever written there
            yield Portion(found=(), upto="")
            return
        found: list[ObjectInfo] = []
        listed = 0
        try:
            async for info in self._listed(behind):
                listed += 1
                if await self._is_unnamed(info):
                    found.append(info)
                if len(found) >= self._objects_max or listed >= LISTED_MAX:
                    yield Portion(found=await self._condemned(found), upto=info.key)
                    found, listed, self._moved = [], 0, False
            yield Portion(found=await self._condemned(found), upto="")
        finally:
            await self._walk.close()

    async def _listed(self, behind: str) -> AsyncGenerator[ObjectInfo, None]:
        """Trees before the one that holds `behind` are done."""
        trees = (
            *self._unique_trees,
            self._lake.keys.partition_prefix(self._topic.name, self._partition),
        )
        at = next((number for number, tree in enumerate(trees) if behind.startswith(tree)), None)
        for tree in trees[at:]:
            start_after = behind if behind.startswith(tree) else ""
            async for info in self._lake.store.list(tree, start_after=start_after):
                yield info

    def _tree(self, name: str) -> str:
        place = f"{self._topic.topic_id.hex()}/{self._partition}/"
        return f"{self._lake.keys.namespace}/{OWN_TREE}/{name}/{place}"

    async def _is_unnamed(self, info: ObjectInfo) -> bool:
        if info.key.startswith(self._compacted_tree):
            return not await self._is_listed(info.key)
        if self._is_unique(info):
            return info.key not in self._names
        name = self._lake.keys.parse_segment(info.key)
        if name is None:
            self.strange += 1
            if len(self.strange_names) < STRANGE_NAMED_MAX:
                self.strange_names.append(info.key)
            return False
        if name.base >= settled_end(self._outline.tail, self._outline.next):
            self.left += 1
            return False
        return await self._key_at(name.base) != ""

    def _is_unique(self, info: ObjectInfo) -> bool:
        return info.key.startswith(self._unique_trees)

    async def _is_listed(self, key: str) -> bool:
        base = key.rpartition("/")[2][:BASE_DIGITS]
        if len(base) != BASE_DIGITS or not base.isdecimal():
            return False
        named = await self._key_at(int(base))
        return bool(named) and key in (named, index_beside(named or ""))

    async def _key_at(self, base: int) -> str | None:
        """The key of the listed segment with this base; "": the key that its base gives; None: no segment has it. A
        segment whose objects are known to be gone names nothing: an object under its name came later."""
        for _ in range(TRIES_MAX):
            try:
                seg = await self._walk.at(base)
            except ObjectNotFound:  # replaced during the read
                await self._look_again()
                continue
            if seg is None or seg.base + seg.last_delta < self._outline.meta.swept:
                return None
            return seg.key
        raise Overtaken(self._outline.name)

    async def _look_again(self) -> None:
        """Earlier answers stay valid: a segment below `next` that was not listed is never listed later."""
        outline = await read_outline(self._lake, self._topic, self._partition)
        check_meta(outline.tail, outline.meta)
        self._moved = self._moved or outline.meta.chunks != self._outline.meta.chunks
        await self._walk.close()
        self._outline, self._walk = outline, SegmentLookup(self._manifests, outline)
        self._names = named(outline)

    async def _condemned(self, found: Sequence[ObjectInfo]) -> tuple[ObjectInfo, ...]:
        """Those that no transaction will name. Raises `gc_seq` if any of them has a unique name."""
        bound = [info for info in found if not self._is_unique(info)]
        unique = [info for info in found if self._is_unique(info)]

        async def prepare() -> Draft[list[ObjectInfo]] | None:
            nonlocal unique
            await self._look_again()
            moved, self._moved = self._moved, False
            unique = [info for info in unique if info.key not in self._names]
            if moved:
                unique = [info for info in unique if await self._is_unnamed(info)]
                if self._moved:
                    return None
            return (
                Draft(None, unique) if self._dry or not unique else fence(self._lake, self._outline, unique)
            )

        if unique:
            unique = await swap(self._lake.etcd, self._outline.name, prepare)
        return (*unique, *bound)


def named(outline: Outline) -> frozenset[str]:
    """The objects that head and meta name directly, not through manifests. Pure."""
    names = {*(chunk.key for chunk in outline.meta.chunks), outline.meta.epochs_key, outline.snap_key}
    for seg in outline.tail:
        if seg.key:
            names |= {seg.key, index_beside(seg.key)}
    return frozenset(names - {""})


@dataclass(frozen=True, slots=True)
class _Fence(Draft[list[ObjectInfo]]):
    """Raises `gc_seq`, and reads the head at the same revision: what the head or that meta names stays."""

    outline: Outline

    def applied(self, answer: TxnResult) -> list[ObjectInfo]:
        found = answer.responses[1]
        assert isinstance(found, RangeResult)
        head = decode_head(found.kvs[0].value)
        names = named(replace(self.outline, head=head))
        return [info for info in self.result if info.key not in names]


def fence(lake: Lake, outline: Outline, unique: list[ObjectInfo]) -> Draft[list[ObjectInfo]]:
    place = (outline.topic.topic_id, outline.partition)
    meta = replace(outline.meta, gc_seq=outline.meta.gc_seq + 1)
    return _Fence(
        build_swap(lake.keys, *place, outline, meta, Range(lake.keys.head(*place))), unique, outline
    )
