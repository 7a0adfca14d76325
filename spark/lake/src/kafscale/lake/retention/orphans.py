"""Orphans: objects that no metadata names or can ever name. They are found by what etcd says, never by their age.

The laws. A segment below `next` that is not listed can never be committed, because offsets below `next` are bound. A
segment at or above `next` may be in flight, and is left. Uniquely named objects (manifests, producer snapshots,
compacted segments) are listed first; then `gc_seq` in meta is raised; then the objects that neither that meta nor the
head of that moment names are deleted. Raising `gc_seq` fences them all: an object is named for the first time by a
transaction that compares a revision of meta that was read before the object's upload began (a checkpoint compares meta
for its snapshot too). So no such transaction can name a listed object any more. A commit, claim or release only copies
the snapshot that its compared head names. Objects that etcd does not know (topics, partitions, foreign names) are left.

Memory is bounded, however many objects the store has: a portion of orphans waits for the reads in flight and is deleted
before the next one is searched. etcd keeps the object after which the next run resumes.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from kafscale.lake.catalog import Lake, partitions_of, read_topics
from kafscale.lake.resume import Partition, Reached, behind, read_place, write_place
from kafscale.lake.retention.deletes import Condemned, Fate, delete_all
from kafscale.lake.retention.unreferenced import STRANGE_NAMED_MAX, Portion, Search
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.meta_swap import Overtaken
from kafscale.storage.job_runs import JobPlace
from kafscale.storage.objects import DELETES_MAX
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import monotonic_s
from kafscale.storage.task_groups import gather_bounded

LOGS_AT_ONCE: Final = 8
LOGS_PER_BATCH: Final = 1_000
OBJECTS_MAX: Final = 50_000
"""Orphans found and not deleted yet: about 30 MB."""
NAMED_MAX: Final = 100_000
"""Orphans that the report names. It counts all of them."""
PLACE_EVERY_S: Final = 5.0
"""The least time between two writes of the position. A run that is killed repeats no more than this."""
JOB: Final = "orphans"

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class OrphanReport:
    """What a collection found and did."""

    partitions: int = 0
    count: int = 0
    bytes: int = 0
    orphans: list[Condemned] = field(default_factory=list)
    """The first NAMED_MAX."""
    left: int = 0
    """Objects at or above the end of their log: in flight, or to be replaced by the owner."""
    strange: int = 0
    """Objects in a topic's tree that are not segments of KafScale."""
    strange_names: list[str] = field(default_factory=list)
    """The first ones."""
    fates: Counter[Fate] = field(default_factory=Counter)
    missed: dict[str, str] = field(default_factory=dict)
    """topic/partition -> why it was skipped."""

    @property
    def stands_still(self) -> bool:
        """Every partition was skipped, or every deletion failed."""
        failed = self.fates[Fate.FAILED]
        return (failed > 0 and failed == self.fates.total()) or 0 < self.partitions <= len(self.missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """`upto` as in `Portion`. `due_s`: when the grace for reads ends, on the monotonic clock."""

    place: Partition
    condemned: tuple[Condemned, ...]
    upto: str
    due_s: float

    @property
    def weight(self) -> int:
        """An empty portion counts too."""
        return len(self.condemned) + 1


class Orphans:
    """One run. `found` may be read during the run. `objects_max`: see OBJECTS_MAX. `named_max`: orphans that the report
    names. `remembers`: the run resumes where the last one ended, and records its own position."""

    def __init__(
        self,
        lake: Lake,
        *,
        grace_s: float,
        objects_max: int = OBJECTS_MAX,
        named_max: int = NAMED_MAX,
        remembers: bool = False,
        progress: Progress = lambda *_: None,
    ) -> None:
        self._lake = lake
        self._grace_s = grace_s
        self._named_max = named_max
        self._remembers = remembers
        self._progress = progress
        self._manifests = ManifestBlocks(lake.store)
        # One half waits. The other half is shared by the logs that are searched at once.
        self._waiting_max = objects_max // 2
        self._portion_max = max(1, objects_max // 2 // LOGS_AT_ONCE)
        self._waiting: deque[_Waiting] = deque()
        self._held = 0
        self._deleting = asyncio.Lock()
        self._reached = Reached(())
        self._written: JobPlace | None = None
        self._written_s = 0.0
        self.found = OrphanReport()

    async def collect(self, names: Iterable[str] | None = None, *, dry: bool = False) -> OrphanReport:
        """Of these topics, or all; `dry` changes nothing, not even `gc_seq`. Raises WentBack, EtcdError, StoreError."""
        if not dry:
            await self._lake.etcd_history().verify()
        last = await read_place(self._lake, JOB) if self._remembers else None
        places = behind(partitions_of(await read_topics(self._lake, names)), last)
        self._reached = Reached(places)
        for at in range(0, len(places), LOGS_PER_BATCH):
            some = places[at : at + LOGS_PER_BATCH]
            looks = (self._look(each, _key_in(each, last), len(places), dry) for each in some)
            await gather_bounded(looks, LOGS_AT_ONCE)
        while self._waiting:
            await self._delete_first()
        await self._remember(at_once=True)
        self.found.orphans.sort(key=lambda orphan: orphan.key)
        return self.found

    async def _look(self, place: Partition, key: str, places: int, dry: bool) -> None:
        look = Search(self._lake, self._manifests, place, objects_max=self._portion_max, dry=dry)
        try:
            async with aclosing(look.portions(key)) as portions:
                async for portion in portions:
                    await self._take(place, portion, dry)
        except (Overtaken, UnreadableValue) as trouble:
            topic, partition = place
            self.found.missed[f"{topic.name}/{partition}"] = str(trouble)
            await self._take(place, Portion(found=(), upto=""), dry)
        self.found.left += look.left
        self.found.strange += look.strange
        room = STRANGE_NAMED_MAX - len(self.found.strange_names)
        self.found.strange_names += look.strange_names[:room]
        self.found.partitions += 1
        self._progress("looking for orphans", self.found.partitions, places)

    async def _take(self, place: Partition, portion: Portion, dry: bool) -> None:
        condemned = tuple(
            Condemned(topic=place[0], key=info.key, etag=info.etag, size=info.size) for info in portion.found
        )
        self.found.count += len(condemned)
        self.found.bytes += sum(orphan.size for orphan in condemned)
        self.found.orphans += condemned[: self._named_max - len(self.found.orphans)]
        if dry:
            return
        # A reader may still read a segment or a manifest that was replaced a moment ago.
        due_s = monotonic_s() + self._grace_s if condemned else 0.0
        waiting = _Waiting(place=place, condemned=condemned, upto=portion.upto, due_s=due_s)
        self._waiting.append(waiting)
        self._held += waiting.weight
        while self._held > self._waiting_max or self._is_due():
            await self._delete_first()

    def _is_due(self) -> bool:
        return bool(self._waiting) and self._waiting[0].due_s <= monotonic_s()

    async def _delete_first(self) -> None:
        """Deletes the portion that waits longest and others that are due, up to one request."""
        async with self._deleting:
            if not self._waiting:
                return
            if not self._is_due():
                self._progress("waiting for reads in flight", 0, 0)
                await asyncio.sleep(self._waiting[0].due_s - monotonic_s())
            some = [self._waiting.popleft()]
            while self._is_due() and sum(len(each.condemned) for each in some) < DELETES_MAX:
                some.append(self._waiting.popleft())
            decided_s = max(each.due_s for each in some) - self._grace_s
            doomed = [orphan for each in some for orphan in each.condemned]
            fates = await delete_all(self._lake, doomed, decided_s)
            self.found.fates.update(fates)
            for each in some:
                self._held -= each.weight
                self._reached.done(each.place, each.upto)
            await self._remember(at_once=False)

    async def _remember(self, *, at_once: bool) -> None:
        place = self._reached.place
        if not self._remembers or place is None or place == self._written:
            return
        if at_once or monotonic_s() >= self._written_s + PLACE_EVERY_S:
            await write_place(self._lake, JOB, place)
            self._written, self._written_s = place, monotonic_s()


def _key_in(place: Partition, last: JobPlace | None) -> str:
    topic, partition = place
    return last.key if last is not None and (topic.name, partition) == (last.topic, last.partition) else ""
