"""Reads all bundles of a namespace, and says of each what it is.

Bundles are listed before the heads are read, so a bundle whose commit is in progress never counts as dead. A bundle
that was written since is not listed. If a head names it, it is found by its key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from kafscale.log.bundle import Directory, Standings
from kafscale.log.heads import decode_head
from kafscale.log.places import read_directory
from kafscale.log.segment import SegmentError
from kafscale.operations.fsck.checks import NamedSlice, Problem, check_directory
from kafscale.operations.sentences import Progress
from kafscale.storage.cluster_record import read_cluster_id
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import META_CLUSTER, BundleId, Keyspace
from kafscale.storage.objects import ObjectInfo, ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.storage.schema import UnreadableValue

HEADS_PER_READ: Final = 500
BUNDLES_AT_ONCE: Final = 16
ANOTHER_CLUSTER: Final = (
    "has records of a partition that etcd does not know, and is not of this etcd's cluster"
)


@dataclass(slots=True)
class BundleCounts:
    """The objects below the prefix of bundles."""

    stored: int = 0
    named: int = 0
    """Heads name a slice of them."""
    pinned: int = 0
    """No head names them, but the owner of a partition may still commit a slice. Legal."""
    dead: int = 0
    """No head will name them again. They wait for their deletion. Legal."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Key -> why the object cannot be judged. No head names it, and upkeep does not delete it."""


class BundleCheck:
    """One run. `problems` are those of the other checks; a lost bundle is not reported again."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        store: ObjectStore,
        problems: list[Problem],
        progress: Progress,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._problems = problems
        self._progress = progress
        self._standings = Standings()
        self._named: defaultdict[BundleId, list[NamedSlice]] = defaultdict(list)
        self._cluster_id = ""
        self.counts = BundleCounts()

    async def run(self) -> None:
        """Raises EtcdError or StoreError if etcd or the store cannot be read."""
        listed = [info async for info in self._store.list(self._keys.bundles_prefix())]
        await self._read_heads()
        self._cluster_id = await self._read_cluster_id()
        stored = self._sorted_out(listed)
        every = sorted(stored.keys() | self._named.keys())
        for start in range(0, len(every), BUNDLES_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for bundle_id in every[start : start + BUNDLES_AT_ONCE]:
                    group.create_task(self._check(bundle_id, stored.get(bundle_id)))
            self._progress("bundles", min(start + BUNDLES_AT_ONCE, len(every)), len(every))

    async def _check(self, bundle_id: BundleId, info: ObjectInfo | None) -> None:
        if named := self._named.get(bundle_id):
            await self._check_named(bundle_id, info, named)
        elif info is not None:
            await self._judge(info)

    def _sorted_out(self, listed: list[ObjectInfo]) -> dict[BundleId, ObjectInfo]:
        """By id, the objects whose names are those of bundles."""
        found: dict[BundleId, ObjectInfo] = {}
        for info in listed:
            bundle_id = self._keys.parse_bundle(info.key)
            if bundle_id is None or not self._is_in_its_folder(bundle_id, info.key):
                self.counts.unreadable[info.key] = "has no name of a bundle"
            else:
                found[bundle_id] = info
        self.counts.stored = len(found)
        return found

    def _is_in_its_folder(self, bundle_id: BundleId, key: str) -> bool:
        """Otherwise no reader finds it by its id."""
        try:
            return self._keys.bundle_key(bundle_id) == key
        except ValueError:  # a time beyond the calendar
            return False

    async def _read_heads(self) -> None:
        async for kv in self._etcd.each(self._keys.heads_prefix(), page_keys=HEADS_PER_READ):
            where = self._keys.parse_head(kv.key)
            try:
                head = decode_head(kv.value)
            except UnreadableValue:  # reported with its topic
                self._standings.unreadable.add(where)
                continue
            self._standings.note(where, head)
            for seg in head.tail:
                if seg.is_slice:
                    self._named[BundleId(seg.bundle)].append(NamedSlice(*where, head.topic, seg))

    async def _read_cluster_id(self) -> str:
        """Empty if it is not known; then no bundle with an unknown partition counts as dead."""
        try:
            return await read_cluster_id(self._etcd, self._keys)
        except UnreadableValue:
            return ""

    # -- bundles that heads name --------------------------------------------------------------------

    async def _check_named(
        self, bundle_id: BundleId, info: ObjectInfo | None, named: list[NamedSlice]
    ) -> None:
        key = self._keys.bundle_key(bundle_id)
        self.counts.named += info is not None
        for each in named:
            if info is not None and each.seg.etag != info.etag:
                self._add(key, f"is not the object that {each.name} names (etag {each.seg.etag})")
        try:
            info = info or await self._store.head(key)
            if info is None:
                raise ObjectNotFound(key)
            directory = await read_directory(self._store, info)
        except (ObjectNotFound, PreconditionFailed):
            await self._report_lost(key, named)
        except SegmentError as broken:
            self._add(key, f"its directory cannot be read: {broken}")
        else:
            self._problems += check_directory(key, bundle_id, directory, named)

    async def _report_lost(self, key: str, named: list[NamedSlice]) -> None:
        """Unless its slices were settled meanwhile."""
        for each in named:
            if await is_named(self._etcd, self._keys, each):
                self._add(
                    key, f"is named by the head of {each.name} and not in the store (etag {each.seg.etag})"
                )

    def _add(self, key: str, what: str) -> None:
        if not any(problem.where.startswith(key) for problem in self._problems):
            self._problems.append(Problem(key, what))

    # -- others -------------------------------------------------------------------------------------

    async def _judge(self, info: ObjectInfo) -> None:
        try:
            directory = await read_directory(self._store, info)
        except (ObjectNotFound, PreconditionFailed):  # deleted since
            self.counts.stored -= 1
        except SegmentError as broken:
            self.counts.unreadable[info.key] = f"cannot be read as a bundle: {broken}"
        else:
            await self._count(info, directory)

    async def _count(self, info: ObjectInfo, directory: Directory) -> None:
        if self._standings.keeping(directory.entries):
            self.counts.pinned += 1
        elif not self._standings.headless(directory.entries) or await self._is_ours(info):
            self.counts.dead += 1
        else:
            self.counts.unreadable[info.key] = ANOTHER_CLUSTER

    async def _is_ours(self, info: ObjectInfo) -> bool:
        found = await self._store.head(info.key)
        return found is not None and found.metadata.get(META_CLUSTER) == self._cluster_id != ""


async def is_named(etcd: EtcdClient, keys: Keyspace, slice_: NamedSlice) -> bool:
    """Whether the head names it now: an owner may have settled it since, and its bundle may be deleted."""
    kv = await etcd.get(keys.head(slice_.topic_id, slice_.partition))
    try:
        return kv is not None and slice_.seg in decode_head(kv.value).tail
    except UnreadableValue:
        return True
