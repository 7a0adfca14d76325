"""Mistakes to plant in the protocol of slices, one at a time: see `writer_flaws`."""

from __future__ import annotations

from bundle_world import BundleWorld, Settle
from kafscale.produce.log.claimants import Claimant, FoundObject
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.plans import Plans
from kafscale.produce.log.writer import PartitionWriter
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


# Those that a search finds.
FLAWS: dict[str, type[BundleWorld]] = {
    "POSITION": PositionOffByOne,
    "SETTLE_UNCOND": SettledUnconditionally,
    "SETTLE_ANY": SettledOverAnybody,
    "EQUAL_PLANS": EqualPlans,
    "FOLD_OVER_PLAN": FoldOverPlan,
    "FOLD_BEHIND_COMMIT": FoldBehindCommit,
}
