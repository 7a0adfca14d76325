"""Slices and settling in arbitrary orders: the laws of `writer_truth` hold, and each planted flaw is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bundle_world import BundleWorld, Settle
from kafscale.produce.log.claimants import Claimant, FoundObject
from kafscale.storage.objects import Condition
from kafscale.storage.segment import SegmentError
from writer_clients import Violation
from writer_search import Walk


class BundleWalk(Walk):
    def __init__(self, world: BundleWorld, seed: int) -> None:
        super().__init__(world, seed)
        more: list[tuple[int, Callable[[], None]]] = [
            (14, lambda: world.seal(self._instance())),
            (8, lambda: world.settle(self._random.randrange(8), fails=self._random.random() < 0.2)),
            (1, lambda: world.give_up(self._random.randrange(8))),
        ]
        self._moves += more
        self._weights = [weight for weight, _ in self._moves]


def first_violation(make: Callable[[], BundleWorld], seeds: range, steps: int = 150) -> str | None:
    for seed in seeds:
        try:
            BundleWalk(make(), seed).run(steps)
        except (Violation, AssertionError, SegmentError) as broken:
            return f"{seed}: {broken!r}"
    return None


def test_no_walk_breaks_a_law() -> None:
    assert first_violation(lambda: BundleWorld(3), range(300)) is None


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


@pytest.mark.parametrize("flaw", [PositionOffByOne, SettledUnconditionally, SettledOverAnybody, EqualPlans])
def test_a_planted_flaw_is_found(flaw: type[BundleWorld]) -> None:
    assert first_violation(lambda: flaw(3), range(400)) is not None
