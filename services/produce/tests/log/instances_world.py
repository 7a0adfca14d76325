"""Instances that write bundles for several partitions.

Each partition is a `BundleWorld` with an etcd of its own. They share the clock, the bundles in the store, and what each
instance knows of its own bundles (`bundles.deletion`, the product's). Two laws more than in `writer_truth`: an offset
of a leader epoch has one record, in however many bundles; the bytes that owners keep stay within their budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import cast

from bundle_world import BundleWorld, slice_of
from kafscale.log.bundle import SliceEntry, build_bundle, parse_bundle
from kafscale.log.heads import Head
from kafscale.log.segment import walk_batches
from kafscale.produce.bundles.deletion import OwnBundles
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import Action, Published, StepDownReason
from kafscale.produce.log.settling import KeptBudget
from kafscale.storage.keys import BundleId, PartitionKey, TopicId
from kafscale.storage.objects import IfAbsent
from kafscale.testkit.models import ModelS3, StoredObject
from kafscale.wire.records import records_in
from writer_clients import ensure
from writer_shell import Network, Owner, Request
from writer_truth import KEYS, Truth

GRACE_MS = 700
TOPICS_APART = 1_000


class Objects(MutableMapping[str, StoredObject]):
    """What a partition sees of the store: its own objects, and the bundles of all."""

    def __init__(self, bundles: dict[str, StoredObject]) -> None:
        self._bundles = bundles
        self._own: dict[str, StoredObject] = {}

    def _of(self, key: str) -> dict[str, StoredObject]:
        return self._bundles if key.startswith(KEYS.bundles_prefix()) else self._own

    def __getitem__(self, key: str) -> StoredObject:
        return self._of(key)[key]

    def __setitem__(self, key: str, value: StoredObject) -> None:
        self._of(key)[key] = value

    def __delitem__(self, key: str) -> None:
        del self._of(key)[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._bundles

    def __len__(self) -> int:
        return len(self._own) + len(self._bundles)


class PartitionWorld(BundleWorld):
    """One of the partitions. Its slices go into the bundles of the whole world."""

    def __init__(self, number: int, whole: InstancesWorld, instances: int) -> None:
        self._number = number
        self._whole = whole
        super().__init__(instances)
        self.s3.objects = cast(dict[str, StoredObject], Objects(whole.s3.objects))
        self.kept = whole.kept

    def _topic_id(self, number: int) -> TopicId:
        return TopicId((self._number * TOPICS_APART + number).to_bytes(16, "big"))

    @property
    def now_ms(self) -> int:
        return self._whole.now_ms

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._whole.now_ms = max(self._whole.now_ms, value)

    def seal(self, instance: int) -> None:
        self._whole.seal(instance)

    def tick(self, elapsed_ms: int) -> None:
        super().tick(elapsed_ms)
        if self._whole.healing:
            self._whole.deliver_all()

    def truth_of(self, topic_id: TopicId) -> Truth:
        return next(truth for truth in self.incarnations if truth.topic_id == topic_id)

    def has(self, topic_id: TopicId) -> bool:
        return any(truth.topic_id == topic_id for truth in self.incarnations)

    def drain(self, owner: Owner) -> None:
        self._drain(owner)

    def noticed(self, owner: Owner, action: Action) -> None:
        super().noticed(owner, action)
        if isinstance(action, Published):
            self._whole.published((owner.truth.topic_id, 0), owner.instance, action)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    world: PartitionWorld
    owner: Owner
    flight: Flight
    entry: SliceEntry


@dataclass(slots=True, eq=False)
class Flying:
    """A bundle whose PUT has no outcome yet."""

    instance: int
    own: OwnBundles
    id: BundleId
    members: list[Member]


class InstancesWorld(Network):
    """Moves that concern an instance with all its partitions."""

    partition_type: type[PartitionWorld] = PartitionWorld
    own_type: type[OwnBundles] = OwnBundles
    grace_ms = GRACE_MS

    def __init__(self, instances: int = 3, partitions: int = 4) -> None:
        super().__init__()
        self.s3 = ModelS3()
        self.now_ms = 1_000
        self.healing = False
        self.kept = KeptBudget(BundleWorld.kept_bytes)
        self.parts = [self.partition_type(number, self, instances) for number in range(partitions)]
        self.own = [self.own_type(self.grace_ms) for _ in range(instances)]
        self._seen: list[dict[PartitionKey, Head]] = [{} for _ in range(instances)]
        self._flying: list[Flying] = []
        self._registered = [True] * instances
        self._paused: dict[int, list[Callable[[], None]]] = {}
        self._named_until: dict[bytes, int] = {}
        self._records: dict[tuple[TopicId, int, int], bytes] = {}  # by topic, leader epoch and offset

    @property
    def instances(self) -> int:
        return len(self.own)

    # --- what is checked with each move --------------------------------------------------------

    def look(self) -> None:
        """Owners tell their instance what their heads are; readers see every head of every moment."""
        for part in self.parts:
            for instance, owner in enumerate(part.serving):
                if owner is not None and not owner.paused:
                    self._note(instance, owner)
            head = part.head()
            for seg in head.tail if head is not None else ():
                if seg.is_slice:
                    self._named_until[seg.bundle] = self.now_ms
        ensure(self.kept.used_bytes <= self.kept.bytes_max, "owners keep more than their budget")

    def _note(self, instance: int, owner: Owner) -> None:
        where = (owner.truth.topic_id, 0)
        if self._seen[instance].get(where) is not owner.writer.head:
            self._seen[instance][where] = owner.writer.head
            self.proven(self.own[instance].changed(where, owner.writer.head, self.now_ms))

    def published(self, where: PartitionKey, instance: int, done: Published) -> None:
        for seg in done.segments:
            self.own[instance].acknowledged(where, BundleId(seg.bundle))

    def proven(self, proof: str | None) -> None:
        """What an instance says of etcd's history."""
        ensure(proof is None, f"etcd did not go back, and yet: {proof}")

    # --- instances -----------------------------------------------------------------------------

    def claim(self, at: int, instance: int) -> None:
        self._registered[instance] = True
        self.parts[at].claim(instance)

    def crash(self, instance: int) -> None:
        """What it knows is lost, with its lease."""
        for part in self.parts:
            part.crash(instance)
        self.own[instance] = self.own_type(self.grace_ms)
        self._seen[instance] = {}
        self._registered[instance] = False
        self._paused.pop(instance, None)
        self._flying = [each for each in self._flying if each.instance != instance]

    def pause(self, instance: int) -> None:
        """For so long that its lease may end."""
        for part in self.parts:
            part.pause(instance)
        self._paused.setdefault(instance, [])

    def resume(self, instance: int) -> None:
        for part in self.parts:
            part.resume(instance)
        for hear in self._paused.pop(instance, []):
            hear()

    def _to(self, instance: int, hear: Callable[[], None]) -> Callable[[], None]:
        """An answer that this life of the instance hears, when it runs."""
        own = self.own[instance]

        def arrive() -> None:
            if self.own[instance] is own:
                if instance in self._paused:
                    self._paused[instance].append(hear)
                else:
                    hear()

        return arrive

    # --- bundles -------------------------------------------------------------------------------

    def seal(self, instance: int) -> None:
        """One bundle of what all partitions of the instance want."""
        wanting = [
            part
            for part in self.parts
            if (owner := part.serving[instance]) is not None
            and not owner.paused
            and owner.writer.wants() is not None
        ]
        if wanting:
            self.seal_slices(instance, wanting)

    def seal_slices(self, instance: int, parts: Sequence[PartitionWorld]) -> BundleId:
        """Of these partitions, in one bundle."""
        found = [
            (part, owner, owner.writer.seal_slice(part.now()))
            for part in parts
            if (owner := part.serving[instance]) is not None
        ]
        bundle_id = BundleId(self.now_ms.to_bytes(6, "big") + self.parts[0].fresh_id()[:10])
        built = build_bundle(bundle_id, [slice_of(owner, flight) for _, owner, flight in found], self.now_ms)
        self.own[instance].sealed(bundle_id, built.entries)
        members = [Member(*each, entry) for each, entry in zip(found, built.entries, strict=True)]
        flying = Flying(instance, self.own[instance], bundle_id, members)
        self._flying.append(flying)
        self._put(flying, tuple(built.body))
        for part, owner, _ in found:
            part.drain(owner)
        return bundle_id

    def _put(self, flying: Flying, body: tuple[bytes | bytearray | memoryview, ...]) -> None:
        key = KEYS.bundle_key(flying.id)

        def run() -> Callable[[], None]:
            etag = self.s3.put(key, body, IfAbsent(), {})
            there = self.s3.head(key)
            assert there is not None
            ensure(etag in (None, there.etag), "a bundle's name is taken by another object")
            self._check_records(self.s3.objects[key].body)
            return self._to(flying.instance, lambda: self._stored(flying, there.etag))

        again = self._to(flying.instance, lambda: self._put(flying, body))
        self.network.append(Request("bundle", None, run, again))

    def _check_records(self, body: bytes) -> None:
        for entry in parse_bundle(body).entries:
            held = body[entry.position : entry.end]
            for span in walk_batches(held):
                for offset, record in enumerate(
                    records_in(held[span.position : span.position + span.size]), span.offset
                ):
                    place = (entry.topic_id, entry.leader_epoch, offset)
                    value = self._records.setdefault(place, record.value or b"")
                    ensure(value == record.value, "an offset of an epoch has two records")

    def _stored(self, flying: Flying, etag: str) -> None:
        if flying not in self._flying:
            return
        self._flying.remove(flying)
        flying.own.answered(flying.id, self.now_ms)
        for each in flying.members:
            if not each.owner.gone:
                now = each.world.now()
                position = each.entry.position
                each.owner.writer.slice_stored(each.entry.base, flying.id, etag, position, now)
                each.world.drain(each.owner)

    def give_up(self, at: int) -> None:
        """The store has not answered for too long. The PUT may arrive yet."""
        if not self._flying:
            return
        flying = self._flying.pop(at % len(self._flying))
        flying.own.lost(flying.id)
        for each in flying.members:
            if not each.owner.gone and not each.owner.paused:
                self.unanswered(each)
                each.world.drain(each.owner)

    def unanswered(self, member: Member) -> None:
        """The PUT of its bundle was given up."""
        owner, now = member.owner, member.world.now()
        owner.writer.slice_failed(member.entry.base, StepDownReason.STORE_UNAVAILABLE, now)

    # --- time ----------------------------------------------------------------------------------

    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        for part in self.parts:
            part.tick(0)

    def deliver_all(self) -> None:
        while self.network:
            self.deliver()
            self.look()
