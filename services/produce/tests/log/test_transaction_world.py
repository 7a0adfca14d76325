"""Transactions beside slices, folds, settling, checkpoints and claims in arbitrary orders: the laws of
`transaction_truth` hold, and each planted flaw is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafscale.log.segment import SegmentError
from test_bundle_world import BundleWalk
from transaction_flaws import FLAWS
from transaction_world import TransactionWorld
from writer_clients import Violation


class TransactionWalk(BundleWalk):
    def __init__(self, world: TransactionWorld, seed: int) -> None:
        super().__init__(world, seed)
        chance = self._random
        more: list[tuple[int, Callable[[], None]]] = [
            (
                24,
                lambda: world.send_transactional(self._instance(), self._which(), count=chance.randint(1, 2)),
            ),
            (10, lambda: world.transactional[self._which()].decide(commit=chance.random() < 0.5)),
            (16, lambda: world.end(self._instance(), self._which())),
            (2, lambda: world.transactional[self._which()].reset()),
        ]
        self._moves += more
        self._weights = [weight for weight, _ in self._moves]

    def _which(self) -> int:
        return self._random.randrange(3)


def first_violation(make: Callable[[], TransactionWorld], seeds: range, steps: int = 200) -> str | None:
    for seed in seeds:
        try:
            TransactionWalk(make(), seed).run(steps)
        except (Violation, AssertionError, SegmentError) as broken:
            return f"{seed}: {broken!r}"
    return None


def test_no_walk_breaks_a_law() -> None:
    assert first_violation(lambda: TransactionWorld(2), range(200)) is None


@pytest.mark.parametrize("name", FLAWS)
def test_a_planted_flaw_is_found(name: str) -> None:
    assert first_violation(lambda: FLAWS[name](2), range(400)) is not None
