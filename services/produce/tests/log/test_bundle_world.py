"""Slices and settling in arbitrary orders: the laws of `writer_truth` hold, and each planted flaw is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bundle_flaws import FLAWS, PlanOverFold
from bundle_world import BundleWorld
from kafscale.log.segment import SegmentError
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


@pytest.mark.parametrize("name", FLAWS)
def test_a_planted_flaw_is_found(name: str) -> None:
    assert first_violation(lambda: FLAWS[name](3), range(600)) is not None


def plan_over_fold(world: BundleWorld) -> None:
    """A fold is in flight when the slices that it repeats become old enough to be settled."""
    world.claim(0)
    for _ in range(3):
        world.send_plain(0)
        world.seal(0)
        while world.network:
            world.deliver(0)
    world.send_plain(0)
    world.seal(0)
    world.tick(3_000)
    world.settle(0)
    while world.network:
        world.deliver(0)
    world.heal()


def test_the_story_of_a_plan_over_a_fold() -> None:
    plan_over_fold(BundleWorld())
    with pytest.raises(AssertionError, match="commits add behind a run"):
        plan_over_fold(PlanOverFold())
