"""Transactions beside slices, folds, settling, checkpoints and claims in arbitrary orders: the laws of
`transaction_truth` hold, and each planted flaw is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from kafscale.log.segment import SegmentError
from test_bundle_world import BundleWalk
from transaction_flaws import FLAWS, PROTOCOL_FLAWS, StaleProof
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
            (10, lambda: world.decide(self._which(), commit=chance.random() < 0.5)),
            (16, lambda: world.end(self._instance(), self._which())),
            (2, lambda: world.transactional[self._which()].reset()),
        ]
        self._moves += more
        self._weights = [weight for weight, _ in self._moves]

    def _which(self) -> int:
        return self._random.randrange(3)


class OwnerWalk(TransactionWalk):
    """Joins and ends, with owners that come and go: little else happens, and most of it soon arrives."""

    def __init__(self, world: TransactionWorld, seed: int) -> None:
        super().__init__(world, seed)
        chance = self._random
        self._moves = [
            (30, lambda: world.send_transactional(self._instance(), self._which())),
            (14, lambda: world.decide(self._which(), commit=chance.random() < 0.3)),
            (14, lambda: world.end(self._instance(), self._which())),
            (8, lambda: world.send_late(self._instance(), self._which())),
            (8, lambda: world.cross(self._instance(), self._which())),
            (6, lambda: world.transactional[self._which()].reset()),
            (30, self._deliver),
            (10, world.rush),
            (4, lambda: world.seal(self._instance())),
            (4, self._tick),
            (4, lambda: self._on_request(world.forget)),
            (4, lambda: world.claim(self._instance())),
            (2, lambda: world.pause(self._instance())),
            (4, lambda: world.resume(self._instance())),
            (1, lambda: world.crash(self._instance())),
        ]
        self._weights = [weight for weight, _ in self._moves]

    def _which(self) -> int:
        """A producer without overlap, and one with it."""
        return self._random.randrange(2)


class FoldWalk(TransactionWalk):
    """One owner, and transactions that abort: the same slices are folded again and again."""

    def __init__(self, world: TransactionWorld, seed: int) -> None:
        super().__init__(world, seed)
        self._moves = [
            (20, lambda: world.send_transactional(0, self._which())),
            (10, lambda: world.decide(self._which(), commit=False)),
            (16, lambda: world.end(0, self._which())),
            (10, lambda: world.seal(0)),
            (20, self._deliver),
            (10, world.rush),
            (4, self._tick),
        ]
        self._weights = [weight for weight, _ in self._moves]


FOLDS = ("fold_drops_aborted", "fold_begins_again", "fold_keeps_unstable")


def first_violation(
    make: Callable[[], TransactionWorld],
    seeds: range,
    steps: int = 200,
    walk: type[TransactionWalk] = TransactionWalk,
) -> str | None:
    for seed in seeds:
        try:
            walk(make(), seed).run(steps)
        except (Violation, AssertionError, SegmentError) as broken:
            return f"{seed}: {broken!r}"
    return None


def test_no_walk_breaks_a_law() -> None:
    assert first_violation(lambda: TransactionWorld(2), range(200)) is None


def test_no_walk_of_joins_and_ends_breaks_a_law() -> None:
    assert first_violation(lambda: TransactionWorld(2), range(60), walk=OwnerWalk) is None


REACHED = ("begun beside", "end of a join", "proof beside", "marker beside", "crossed")


def test_walks_of_joins_and_ends_reach_what_they_are_for() -> None:
    """The next transaction begins while the last one ends: before its end came, or its marker, or its proof."""
    reached = Counter[str]()
    for seed in range(60):
        world = TransactionWorld(2)
        OwnerWalk(world, seed).run(200)
        reached += world.reached
    assert min(reached[what] for what in REACHED) > 10, reached


@pytest.mark.parametrize("name", PROTOCOL_FLAWS)
def test_a_flaw_of_joins_and_ends_is_found(name: str) -> None:
    assert first_violation(lambda: PROTOCOL_FLAWS[name](2), range(400), walk=OwnerWalk) is not None


def stale_proof(world: TransactionWorld) -> None:
    """An owner's commit is applied before another one claims the partition, and its answer comes after an end."""
    world.claim(0)
    world.send_plain(0)
    world.seal(0)
    world.deliver(0)
    old = world.serving[0]
    assert old is not None
    world.pause(0)
    world.rush()
    world.claim(1)
    world.send_transactional(1, 0)
    for _ in range(4):
        world.rush()
    assert world.truth.transactions.open, "another owner has it open"
    world.decide(0, commit=True)
    producer = world.transactional[0]
    assert producer.closing is not None
    world.carry_out(old, producer, producer.closing)
    world.resume(0)
    world.heal()


def test_the_story_of_a_proof_from_before_the_end() -> None:
    stale_proof(TransactionWorld())
    with pytest.raises(Violation, match="is proven, and its transaction is open"):
        stale_proof(StaleProof())


@pytest.mark.parametrize("name", FLAWS)
def test_a_planted_flaw_is_found(name: str) -> None:
    walk = FoldWalk if name in FOLDS else TransactionWalk
    assert first_violation(lambda: FLAWS[name](2), range(400), walk=walk) is not None


def test_no_walk_of_folds_breaks_a_law() -> None:
    assert first_violation(lambda: TransactionWorld(2), range(30), walk=FoldWalk) is None
