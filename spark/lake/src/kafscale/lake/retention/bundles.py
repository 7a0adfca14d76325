"""The sweep: deletes bundles that no reader needs and whose instance is gone.

An instance deletes its own bundles. The sweep deletes what instances that died have left. The laws:

- A bundle is deleted when no head names it and each of its slices is dead (`log.bundle.is_dead`), which is final.
- Heads are read after the bundles are listed: the head of a slice's partition exists before the slice is stored.
- A slice of the present epoch above the high watermark may still be committed by its owner. If that owner is not
  registered, the sweep raises the epoch, and the slice is dead.
- A partition without a head counts as deleted only if the bundle belongs to this etcd's cluster, and if the bundle is
  old or the deletion has left a mark in the bucket: an empty or wrong etcd must cost nothing.
- A head that cannot be read keeps every bundle with a slice of its partition.
- Nothing is dead in an etcd that went back. Heads are read with the proof that they are of the known history, and the
  history is verified again before objects are deleted.
- A slice that was never committed, as far as the heads say, is the trace of a failed write, or of an etcd that went
  back by less than the history proves. So its bundle is kept for `keep_ms`.

A run begins where the last one ended, so what can never go does not hide the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.lake.catalog import Lake
from kafscale.lake.resume import read_place, write_place
from kafscale.log.bundle import Standings, made_ms
from kafscale.log.claims import ROLE, build_release
from kafscale.log.heads import Head, decode_head
from kafscale.log.places import read_directory
from kafscale.log.segment import SegmentError
from kafscale.storage.cluster_record import read_cluster_id
from kafscale.storage.coordination import owner_gone
from kafscale.storage.etcd.client import Range, Txn
from kafscale.storage.job_runs import JobPlace
from kafscale.storage.keys import META_CLUSTER, BundleId, PartitionKey, TopicId
from kafscale.storage.objects import (
    DELETES_MAX,
    Doomed,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
)
from kafscale.storage.recovery_keys import deletion_marks_prefix, parse_deletion_mark
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded

BUNDLES_MAX: Final = 50_000
"""Looked at in one run, some 400 bytes each. The next run continues with the rest."""
JOB: Final = "bundles"
HEADS_PER_READ: Final = 500
READS_AT_ONCE: Final = 16


@dataclass(slots=True)
class SweepReport:
    """`named`: bundles that a head names. `pinned`: others with a slice that may still be committed."""

    bundles: int = 0
    named: int = 0
    pinned: int = 0
    oldest_pinned_ms: int | None = None
    """When the oldest pinned bundle was created."""
    kept: int = 0
    """Those that are kept for `keep_ms`, because a slice was never committed or its topic is unknown."""
    deleted: int = 0
    failed: int = 0
    bumped: int = 0
    """Heads whose epoch was raised."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Bundle or partition -> why it was left."""

    @property
    def stands_still(self) -> bool:
        """Every deletion failed."""
        return self.failed > 0 and not self.deleted


class Sweep:
    """One run over the folders that are older than `min_age_ms`. `report` may be read during the run."""

    def __init__(
        self, lake: Lake, *, min_age_ms: int, keep_ms: int, grace_s: float, now_ms: Callable[[], int]
    ) -> None:
        self._lake = lake
        self._history = lake.etcd_history()
        self._keep_ms = keep_ms
        self._deleted_topics: set[TopicId] | None = None  # None: not read yet
        self._min_age_ms = min_age_ms
        self._grace_s = grace_s
        self._now_ms = now_ms
        self._cluster_id = ""
        self._heads = Standings()
        self._pinned: list[ObjectInfo] = []
        self._keeping: set[PartitionKey] = set()  # partitions that pin a bundle
        self.report = SweepReport()

    async def run(self) -> SweepReport:
        """Raises WentBack, EtcdError, StoreError, and UnreadableValue of the cluster's record."""
        candidates, place = await self._list()
        if candidates:
            await self._sweep(candidates)
        await write_place(self._lake, JOB, JobPlace(topic="", partition=0, key=place))
        return self.report

    async def _sweep(self, candidates: list[ObjectInfo]) -> None:
        self._cluster_id = await read_cluster_id(self._lake.etcd, self._lake.keys)
        self._heads = await self._read_heads()
        unnamed = [info for info in candidates if self._id(info) not in self._heads.named]
        self.report.named = len(candidates) - len(unnamed)
        dead = [info for info in await self._judge_all(unnamed) if info is not None]
        dead += await self._bump_and_judge()
        if dead:
            await asyncio.sleep(self._grace_s)  # a reader may have seen an older head
            await self._delete(dead)

    async def _list(self) -> tuple[list[ObjectInfo], str]:
        """Oldest first, from the place of the last run on; and the place of the next run, "": from the beginning.

        The time of the newest that counts is a name too: folders and ids rise with time.
        """
        keys = self._lake.keys
        last = await read_place(self._lake, JOB)
        newest = keys.bundle_key(
            BundleId(max(0, self._now_ms() - self._min_age_ms).to_bytes(6, "big") + bytes(10))
        )
        found: list[ObjectInfo] = []
        place = ""
        async for info in self._lake.store.list(keys.bundles_prefix(), start_after=last.key if last else ""):
            if info.key >= newest:
                break
            if len(found) == BUNDLES_MAX:
                place = found[-1].key
                break
            if keys.parse_bundle(info.key) is not None:
                found.append(info)
        self.report.bundles = len(found)
        return found, place

    def _id(self, info: ObjectInfo) -> BundleId:
        bundle_id = self._lake.keys.parse_bundle(info.key)
        assert bundle_id is not None
        return bundle_id

    async def _read_heads(self) -> Standings:
        heads = Standings()
        async for kv in self._history.each(self._lake.keys.heads_prefix(), page_keys=HEADS_PER_READ):
            self._note_head(heads, kv.key, kv.value)
        return heads

    def _note_head(self, heads: Standings, key: bytes, value: bytes) -> None:
        where = self._lake.keys.parse_head(key)
        try:
            head = decode_head(value)
        except UnreadableValue as error:
            heads.unreadable.add(where)
            self.report.unreadable[f"{where[0].hex()}/{where[1]}"] = str(error)
            return
        heads.note(where, head)

    async def _judge_all(self, unnamed: list[ObjectInfo]) -> list[ObjectInfo | None]:
        return await gather_bounded((self._judge(info) for info in unnamed), READS_AT_ONCE)

    async def _judge(self, info: ObjectInfo) -> ObjectInfo | None:
        """The bundle if it is dead. Otherwise it is kept for `_bump_and_judge`, or reported."""
        try:
            directory = await read_directory(self._lake.store, info)
        except ObjectNotFound:  # its instance has deleted it
            return None
        except (SegmentError, PreconditionFailed) as error:  # or another program replaces it just now
            self.report.unreadable[info.key] = str(error)
            return None
        if keeping := self._heads.keeping(directory.entries):
            self._pinned.append(info)
            self._keeping |= keeping
            return None
        headless = self._heads.headless(directory.entries)
        if headless and not await self._is_ours(info):
            self.report.unreadable[info.key] = (
                "it has records of an unknown partition, maybe of another cluster"
            )
            return None
        if self._is_young(info) and not (
            self._heads.all_committed(directory.entries) and headless <= await self._topics_deleted()
        ):
            self.report.kept += 1
            return None
        return info

    def _is_young(self, info: ObjectInfo) -> bool:
        return made_ms(self._id(info)) > self._now_ms() - self._keep_ms

    async def _topics_deleted(self) -> set[TopicId]:
        """As the marks say that deletions leave in the bucket."""
        if self._deleted_topics is None:
            keys, store = self._lake.keys, self._lake.store
            names = [info.key async for info in store.list(deletion_marks_prefix(keys))]
            marks = (parse_deletion_mark(keys, name) for name in names)
            self._deleted_topics = {mark[0] for mark in marks if mark is not None}
        return self._deleted_topics

    async def _is_ours(self, info: ObjectInfo) -> bool:
        found = await self._lake.store.head(info.key)
        return found is not None and found.metadata.get(META_CLUSTER) == self._cluster_id != ""

    async def _bump_and_judge(self) -> list[ObjectInfo]:
        """Raises the epochs of partitions that keep bundles and have no owner. Such an owner may have committed a slice
        after the heads were read."""
        pinned, self._pinned = self._pinned, []
        keeping = self._keeping - self._heads.unreadable
        await gather_bounded((self._bump(where) for where in keeping), READS_AT_ONCE)
        unnamed = [info for info in pinned if self._id(info) not in self._heads.named]
        self.report.named += len(pinned) - len(unnamed)
        dead = [info for info in await self._judge_all(unnamed) if info is not None]
        self.report.pinned = len(self._pinned)
        self.report.oldest_pinned_ms = min((made_ms(self._id(info)) for info in self._pinned), default=None)
        return dead

    async def _bump(self, where: PartitionKey) -> None:
        """A compare-and-swap that fails leaves the bundles to the next run."""
        lake = self._lake
        (found,) = await self._history.proven([Range(lake.keys.head(*where))])
        if not found.kvs:
            self._heads.forget(where)
            return
        kv = found.kvs[0]
        try:
            head = decode_head(kv.value)
        except UnreadableValue as error:
            self.report.unreadable[f"{where[0].hex()}/{where[1]}"] = str(error)
            return
        released = replace(head, epoch=head.epoch + 1, owner="")
        txn = _raise_epoch(lake, where, head, released, kv.mod_revision)
        txn = replace(txn, compare=(*txn.compare, await self._history.fenced()))
        if (await lake.etcd.txn(txn)).succeeded:
            self.report.bumped += 1
            self._heads.note(where, released)

    async def _delete(self, dead: list[ObjectInfo]) -> None:
        for at in range(0, len(dead), DELETES_MAX):
            some = dead[at : at + DELETES_MAX]
            await self._history.verify()
            outcomes = await self._lake.store.delete_many([Doomed(info.key) for info in some])
            failed = sum(isinstance(outcome, StoreError) for outcome in outcomes)
            self.report.failed += failed
            self.report.deleted += len(some) - failed


def _raise_epoch(lake: Lake, where: PartitionKey, head: Head, released: Head, revision: int) -> Txn:
    """A release into a new epoch, if the owner is not registered."""
    txn = build_release(lake.keys, *where, released=released, revision=revision)
    if not head.owner:
        return txn
    return replace(txn, compare=(*txn.compare, owner_gone(lake.keys, ROLE, head.owner)))
