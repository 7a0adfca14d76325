"""Mistakes to plant in the protocol of slices, one at a time: see `writer_flaws`. Capitals are the names of the model's
mutations (`tools/bundle_model`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import writer_flaws
from bundle_world import BundleWorld, Settle
from deletion_world import DeletionWorld, SweepRun
from instances_world import Flying, Member, PartitionWorld
from kafscale.log.bundle import SliceEntry
from kafscale.log.heads import Head, Seg
from kafscale.produce.bundles.deletion import OwnBundles
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import Instant, Limits, SettleRun
from kafscale.produce.log.plans import Plans
from kafscale.produce.log.settling import SettledRun, Settling
from kafscale.produce.log.uploading import Claimant, FoundObject
from kafscale.produce.log.writer import PartitionWriter
from kafscale.storage.keys import BundleId, PartitionKey
from kafscale.storage.objects import Condition
from writer_shell import Owner


class PositionOffByOne(BundleWorld):
    """The commit names the byte after the one where the slice begins."""

    def position_of(self, position: int) -> int:
        return position + 1


class SettledUnconditionally(BundleWorld):
    """A settled segment is PUT whatever is there."""

    def condition_of(self, settle: Settle) -> Condition:
        return None  # type: ignore[return-value]


class SettledOverAnybody(BundleWorld):
    """The object of a newer epoch is replaced too."""

    def claimant(self, found: FoundObject | None, settle: Settle) -> Claimant:
        claimant = super().claimant(found, settle)
        return Claimant.OLDER if claimant is Claimant.NEWER else claimant


class EqualPlans(BundleWorld):
    """Two plans of the same slices write equal bytes."""

    def attempt_of_plan(self) -> bytes:
        return bytes(16)


class _Overlapping(Plans):
    @property
    def planned_end(self) -> int:
        return 0


class FoldOverPlan(BundleWorld):
    """A slice folds entries that a settle plan is rewriting."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans.__class__ = _Overlapping


class _Blind(Plans):
    def sealed(self, flight: Flight) -> None:
        pass


class PlanOverFold(BundleWorld):
    """A settle plan begins over entries that a fold in flight takes. A search seldom finds it: a story shows it."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans.__class__ = _Blind


class _Folding(PartitionWriter):
    """The transaction that changes the head is not looked at."""

    def seal_slice(self, now: object) -> Flight:
        flight = self._pipeline.seal_slice(self.head, self._plans.planned_end, now)  # type: ignore[arg-type]
        self._plans.sealed(flight)
        return flight


class FoldBehindCommit(BundleWorld):
    """A slice folds while a commit is under way, which adds to the tail that it has seen."""

    writer_type = _Folding


class NoFence(writer_flaws.NoFence, BundleWorld):
    pass


class AmbigFail(writer_flaws.AmbigFail, BundleWorld):
    pass


class OutOfOrder(writer_flaws.OutOfOrder, BundleWorld):
    pass


class _Eager(PartitionWriter):
    def slice_stored(self, base: int, bundle: bytes, etag: str, position: int, now: Instant) -> None:
        self._uploads.stored(base, bundle, etag, position)
        for flight in self._uploads:
            if flight.home.uploaded:
                self._answers.acknowledge(flight.waiters.take_all(), 0)
        self._advance(now)


class AckUploaded(BundleWorld):
    """Requests are acknowledged when their bundle is in the store, before the commit."""

    writer_type = _Eager


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlindRun(SettledRun):
    tail: tuple[Seg, ...]

    def applied_to(self, head: Head) -> Head:
        # super() does not know a class with slots.
        return SettledRun.applied_to(self, replace(head, tail=self.tail))


class _BlindSettling(Settling):
    _tail: tuple[Seg, ...] = ()

    def take(self, head: Head, limits: Limits, now: Instant) -> SettleRun | None:
        plan = super().take(head, limits, now)
        if plan is not None:
            self._tail = head.tail
        return plan

    def take_ready(self) -> SettledRun | None:
        ready = super().take_ready()
        return None if ready is None else _BlindRun(plan=ready.plan, seg=ready.seg, tail=self._tail)


class SettleBlind(BundleWorld):
    """The swap writes the tail as it was when the plan was made."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans._settling.__class__ = _BlindSettling


class OrphansToNext(BundleWorld):
    """The collector takes what no head names below the high watermark, also where slices are being settled."""

    def _is_orphan(self, key: str, head: Head) -> bool:
        base = int(key.rpartition("segment-")[2].partition(".")[0])
        return key not in self.truth.etags and base < head.next


# Those that a search finds.
FLAWS: dict[str, type[BundleWorld]] = {
    "POSITION": PositionOffByOne,
    "SETTLE_UNCOND": SettledUnconditionally,
    "SETTLE_ANY": SettledOverAnybody,
    "EQUAL_PLANS": EqualPlans,
    "FOLD_OVER_PLAN": FoldOverPlan,
    "FOLD_BEHIND_COMMIT": FoldBehindCommit,
    "NO_FENCE": NoFence,
    "AMBIG_FAIL": AmbigFail,
    "OUT_OF_ORDER": OutOfOrder,
    "ACK_UPLOADED": AckUploaded,
    "SETTLE_BLIND": SettleBlind,
    "ORPHANS_TO_NEXT": OrphansToNext,
}


class AckAll(DeletionWorld):
    """One partition's commit acknowledges the whole bundle."""

    def __init__(self) -> None:
        super().__init__()
        self._all: dict[BundleId, list[Member]] = {}

    def _put(self, flying: Flying, body: tuple[bytes | bytearray | memoryview, ...]) -> None:
        self._all[flying.id] = flying.members
        super()._put(flying, body)

    def look(self) -> None:
        super().look()
        for bundle_id in [each for each in self._all if each in self._named_until]:
            for member in self._all.pop(bundle_id):
                member.owner.writer._answers.acknowledge(member.flight.waiters.take_all(), 0)
                member.world.drain(member.owner)


class ReuseOffset(DeletionWorld):
    """The offsets of a bundle PUT of unknown outcome are given to other records."""

    def unanswered(self, member: Member) -> None:
        owner = member.owner
        owner.writer = member.world.make_writer(owner.writer.head, owner.writer.revision)


class GcUnnamed(DeletionWorld):
    """The sweep deletes what no head names now, although it may still be committed."""

    def keeping(self, run: SweepRun, entries: Iterable[SliceEntry]) -> set[PartitionKey]:
        return set()


class GcByBase(DeletionWorld):
    """A slice counts as dead when the high watermark has passed its base, not its end. Only a fold is such a slice, and
    a search over several partitions seldom meets it."""

    def __init__(self) -> None:
        super().__init__(instances=2, partitions=1)

    def keeping(self, run: SweepRun, entries: Iterable[SliceEntry]) -> set[PartitionKey]:
        return super().keeping(run, [each._replace(last=each.base) for each in entries])


class GcMineOnly(DeletionWorld):
    """The creator looks only at its own partitions, not at those that have moved."""

    def standing_of(self, part: PartitionWorld, where: PartitionKey) -> Head | None:
        return None


class _GivenUpEarly(PartitionWorld):
    def _put_settled(self, settle: Settle, done: Callable[[], None]) -> None:
        run = settle.plan.run

        def early() -> None:
            head = settle.owner.writer.head
            without = replace(head, tail=tuple(seg for seg in head.tail if seg not in run))
            own = self._whole.own[settle.owner.instance]
            own.changed((settle.owner.truth.topic_id, 0), without, self.now_ms)
            done()

        super()._put_settled(
            settle, early if len(settle.todo) == 2 else done
        )  # both objects are still to come


class DeleteAtPlan(DeletionWorld):
    """Slices are given up when their segment is stored, not when it is swapped in."""

    partition_type = _GivenUpEarly


class NoGrace(DeletionWorld):
    """A bundle is deleted while a reader has a view that names it."""

    grace_ms = 0


class _GraceFromPut(OwnBundles):
    def answered(self, bundle_id: BundleId, now_ms: int) -> None:
        self._put_ms = {**getattr(self, "_put_ms", {}), bundle_id: now_ms}
        super().answered(bundle_id, now_ms)

    def _note(self, bundle_id: BundleId, now_ms: int) -> None:
        super()._note(bundle_id, getattr(self, "_put_ms", {}).get(bundle_id, now_ms))


class GraceFromPut(DeletionWorld):
    """The grace begins when a bundle is stored, not when nobody needs it any more."""

    own_type = _GraceFromPut


class NoBump(DeletionWorld):
    """The sweep does not end the epoch of a dead owner, so nothing ends what that owner left."""

    def bump(self, run: object, entry: SliceEntry) -> None:
        pass


class BumpBlind(DeletionWorld):
    """The sweep raises an epoch without a look at what the head names by now."""

    def bumped(self, run: SweepRun, entry: SliceEntry, head: Head) -> None:
        super().bumped(run, entry, replace(head, tail=()))


DELETION_FLAWS: dict[str, type[DeletionWorld]] = {
    "ACK_ALL": AckAll,
    "REUSE_OFFSET": ReuseOffset,
    "GC_UNNAMED": GcUnnamed,
    "GC_BY_BASE": GcByBase,
    "GC_MINE_ONLY": GcMineOnly,
    "DELETE_AT_PLAN": DeleteAtPlan,
    "NO_GRACE": NoGrace,
    "GRACE_FROM_PUT": GraceFromPut,
    "NO_BUMP": NoBump,
    "BUMP_BLIND": BumpBlind,
}
