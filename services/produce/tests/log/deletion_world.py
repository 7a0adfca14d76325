"""Instances that write bundles for several partitions, and the two that delete bundles: their creator and the sweep.

The sweep is written out here step by step, with the product's rules (`log.bundle`), so that every move may come
between two of its steps.

The laws, beside those of `instances_world`: a bundle is deleted when no head names it, when no head has named it for
the grace, and never before; no head names a bundle that is gone; at the end no bundle is left that no head names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from instances_world import GRACE_MS, InstancesWorld, PartitionWorld
from kafscale.log.bundle import SliceEntry, Standings, parse_bundle
from kafscale.log.heads import Head, decode_head
from kafscale.storage.keys import BundleId, PartitionKey
from kafscale.storage.objects import DELETES_MAX
from writer_clients import ensure
from writer_shell import Request
from writer_truth import KEYS


@dataclass(slots=True)
class SweepRun:
    """`steps` are left to do, the first one next."""

    bundles: list[BundleId]
    steps: list[Callable[[SweepRun], None]]
    standings: Standings = field(default_factory=Standings)
    dead: list[BundleId] = field(default_factory=list)
    dead_since_ms: int = 0


class DeletionWorld(InstancesWorld):
    """The methods from `standing_of` on that flaws override say what the protocol does."""

    def __init__(self, instances: int = 3, partitions: int = 4) -> None:
        super().__init__(instances, partitions)
        self._run: SweepRun | None = None

    # --- the creator deletes -------------------------------------------------------------------

    def ask(self, instance: int) -> None:
        """What became of slices in partitions that have moved away. Request and answer may be late."""
        if instance in self._paused:
            return
        for part in self.parts:
            for where, asked in self.elsewhere(part, instance).items():
                self._ask(part, instance, where, asked)

    def _ask(
        self, part: PartitionWorld, instance: int, where: PartitionKey, asked: frozenset[BundleId]
    ) -> None:
        def run() -> Callable[[], None]:
            head = self.standing_of(part, where)
            hear = self._to(instance, lambda: self.answered(instance, where, head, asked))
            self.network.append(Request("answer", None, lambda: hear, lambda: None))
            return lambda: None

        self.network.append(Request("ask", None, run, lambda: None))

    def answered(
        self, instance: int, where: PartitionKey, head: Head | None, asked: frozenset[BundleId] | None
    ) -> None:
        if head is None:
            self.own[instance].deleted_topic(where, self.now_ms)
        else:
            self.proven(self.own[instance].changed(where, head, self.now_ms, asked))

    def elsewhere(self, part: PartitionWorld, instance: int) -> dict[PartitionKey, frozenset[BundleId]]:
        owner = part.serving[instance]
        mine = [(owner.truth.topic_id, 0)] if owner is not None else []
        found = self.own[instance].elsewhere(mine)
        return {where: found[where] for where in sorted(found) if part.has(where[0])}

    def delete(self, instance: int) -> None:
        """A DELETE without an answer is sent again."""
        if instance not in self._paused:
            for bundle_id in self.own[instance].dead.take(self.now_ms, DELETES_MAX):
                self._delete(instance, bundle_id)

    def _delete(self, instance: int, bundle_id: BundleId) -> None:
        dead = self.own[instance].dead

        def run() -> Callable[[], None]:
            self._deleted(bundle_id)
            return lambda: None

        again = self._to(instance, lambda: dead.put_back([bundle_id], self.now_ms))
        self.network.append(Request("delete", None, run, again))

    def _deleted(self, bundle_id: BundleId) -> None:
        """The store executes a DELETE."""
        if not self.s3.delete(KEYS.bundle_key(bundle_id), None):
            return
        for part in self.parts:
            head = part.head()
            named = {seg.bundle for seg in head.tail} if head is not None else set()
            ensure(bundle_id not in named, "a bundle that a head names is gone")
        until = self._named_until.get(bundle_id, -GRACE_MS)
        ensure(self.now_ms - until >= GRACE_MS, "a reader with an older head misses a bundle")

    # --- the sweep -----------------------------------------------------------------------------

    def sweep(self) -> None:
        """The next step of the run under way, or the first of a new one."""
        if self._run is None:
            bundles = [cast(BundleId, KEYS.parse_bundle(key)) for key in sorted(self.s3.objects)]
            reads = [self._read_of(part) for part in self.parts]
            self._run = SweepRun(bundles, [*reads, self._judge_and_bump, self._judge, self._wait])
        self._run.steps.pop(0)(self._run)
        if not self._run.steps:
            self._run = None

    def _read_of(self, part: PartitionWorld) -> Callable[[SweepRun], None]:
        def read(run: SweepRun) -> None:
            head = part.head()
            if head is not None:
                run.standings.note((part.truth.topic_id, 0), head)

        return read

    def _judge_and_bump(self, run: SweepRun) -> None:
        for bundle_id in run.bundles:
            for entry in self._entries(run, bundle_id):
                if self.keeping(run, [entry]):
                    self.bump(run, entry)

    def bump(self, run: SweepRun, entry: SliceEntry) -> None:
        """Ends the epoch of an owner that is not registered."""
        part = next(part for part in self.parts if part.has(entry.topic_id))
        truth = part.truth_of(entry.topic_id)
        stored = part.etcd.get(part.head_key(truth))
        if stored is None:
            run.standings.forget((entry.topic_id, entry.partition))
            return
        head = decode_head(stored.value)
        if head.owner and self._registered[int(head.owner[0])]:
            return
        released = replace(head, epoch=head.epoch + 1, owner="")
        if part.put_head(truth, stored.mod_revision, released) is not None:
            self.bumped(run, entry, released)

    def _judge(self, run: SweepRun) -> None:
        run.dead = [
            bundle_id
            for bundle_id in run.bundles
            if (entries := self._entries(run, bundle_id)) and not self.keeping(run, entries)
        ]
        run.dead_since_ms = self.now_ms

    def _entries(self, run: SweepRun, bundle_id: BundleId) -> tuple[SliceEntry, ...]:
        """Of a bundle that no head names and that is there."""
        there = self.s3.objects.get(KEYS.bundle_key(bundle_id))
        return () if there is None or bundle_id in run.standings.named else parse_bundle(there.body).entries

    def _wait(self, run: SweepRun) -> None:
        if self.now_ms - run.dead_since_ms < self.grace_ms:
            run.steps.append(self._wait)
            return
        for bundle_id in run.dead:
            self._sweep_away(bundle_id)

    def _sweep_away(self, bundle_id: BundleId) -> None:
        def run() -> Callable[[], None]:
            self._deleted(bundle_id)
            return lambda: None

        self.network.append(Request("sweep", None, run, lambda: None))

    # --- what flaws change ---------------------------------------------------------------------

    def standing_of(self, part: PartitionWorld, where: PartitionKey) -> Head | None:
        """The head of a partition that has moved away; None: its topic was deleted."""
        stored = part.etcd.get(part.head_key(part.truth_of(where[0])))
        return None if stored is None else decode_head(stored.value)

    def bumped(self, run: SweepRun, entry: SliceEntry, head: Head) -> None:
        """The owner may have committed slices since the sweep has read this head."""
        run.standings.note((entry.topic_id, entry.partition), head)

    def keeping(self, run: SweepRun, entries: Iterable[SliceEntry]) -> set[PartitionKey]:
        """The partitions that may still commit a slice of them."""
        return run.standings.keeping(entries)

    # --- the end -------------------------------------------------------------------------------

    def heal(self, *, all_die: bool) -> None:
        """With `all_die` nobody but the sweep is left for a while. Then every partition heals, and the deleters run."""
        self.healing = True
        for instance in range(self.instances):
            self.resume(instance)
        if all_die:
            self._die_and_sweep()
        for part in self.parts:
            part.heal()
            self.look()
        self._clean()
        ensure(not self.s3.objects, "a bundle that no head names is never deleted")

    def _die_and_sweep(self) -> None:
        for instance in range(self.instances):
            self.crash(instance)
        for part in self.parts:
            while part.network:
                part.deliver()
        self.deliver_all()
        self._clean()
        named = {seg.bundle for part in self.parts if (head := part.head()) for seg in head.tail}
        left = {KEYS.parse_bundle(key) for key in self.s3.objects}
        ensure(left <= named, "a bundle of dead instances that no head names is never deleted")

    def _clean(self) -> None:
        """Time for both deleters: what the creators leave, the sweep finds."""
        for _ in range(4):
            for instance in range(self.instances):
                self.ask(instance)
            self.deliver_all()
            self.now_ms += GRACE_MS
            for instance in range(self.instances):
                self.delete(instance)
            self.deliver_all()
            self._sweep_once()
            self.deliver_all()

    def _sweep_once(self) -> None:
        self.sweep()
        while self._run is not None:
            self.now_ms += GRACE_MS
            self.sweep()
