"""Bundles of several partitions and their deletion, in arbitrary orders."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from bundle_flaws import DELETION_FLAWS
from deletion_world import DeletionWorld
from instances_world import PartitionWorld
from kafscale.log.segment import SegmentError
from loss_world import LossWorld, Unverified, moves_after
from writer_clients import Violation
from writer_shell import Network

STEPS = 220


class DeletionWalk:
    """Moves of the whole world, and of one partition at a time; each walk is repeatable from its seed."""

    def __init__(self, world: DeletionWorld, seed: int) -> None:
        self.world = world
        self._random = random.Random(seed)
        self._seed = seed
        self._moves: list[tuple[int, Callable[[], None]]] = [
            (16, self._send),
            (44, lambda: self._on_request(lambda network, at: network.deliver(at))),
            (8, lambda: self._on_request(lambda network, at: network.deliver(at, lose_answer=True))),
            (4, lambda: self._on_request(lambda network, at: network.deliver(at, keep=True))),
            (6, lambda: self._on_request(lambda network, at: network.forget(at))),
            (2, lambda: self._on_request(lambda network, at: network.drop(at))),
            (10, lambda: world.seal(self._instance())),
            (8, lambda: world.tick(self._random.choice((0, 1, 60, 300, 2_000)))),
            (3, lambda: world.claim(self._random.randrange(len(world.parts)), self._instance())),
            (1, lambda: world.pause(self._instance())),
            (2, lambda: world.resume(self._instance())),
            (1, lambda: world.crash(self._instance())),
            (1, lambda: world.give_up(self._random.randrange(8))),
            (8, lambda: self._part().settle(self._random.randrange(8), fails=self._random.random() < 0.1)),
            (2, lambda: self._part().checkpoint(self._instance())),
            (3, lambda: world.ask(self._instance())),
            (5, lambda: world.delete(self._instance())),
            (6, world.sweep),
        ]
        if seed % 4 == 0:
            self._moves.append((2, lambda: self._part().recreate_topic()))

    def run(self) -> None:
        for at in range(len(self.world.parts)):
            self.world.claim(at, 0)
        self._walk(STEPS)
        self.world.heal(all_die=self._seed % 2 == 1)

    def lose(self, world: LossWorld) -> None:
        """Some moves, a snapshot of etcd, more moves, and etcd is restored from it."""
        for at in range(len(world.parts)):
            world.claim(at, 0)
        self._walk(self._random.randrange(STEPS))
        world.take_snapshot()
        self._walk(STEPS // 2)
        world.go_back()
        moves = list(moves_after(world, self._random.randrange))
        for move in self._random.choices(moves, k=STEPS):
            move()
        world.keeps_all()

    def _walk(self, steps: int) -> None:
        moves, weights = [move for _, move in self._moves], [weight for weight, _ in self._moves]
        for move in self._random.choices(moves, weights, k=steps):
            move()
            self.world.look()

    def _instance(self) -> int:
        return self._random.randrange(self.world.instances)

    def _part(self) -> PartitionWorld:
        return self._random.choice(self.world.parts)

    def _send(self) -> None:
        part = self._part()
        serving = [instance for instance, owner in enumerate(part.serving) if owner is not None]
        if serving:
            part.send_plain(self._random.choice(serving), self._random.randint(1, 2))

    def _on_request(self, move: Callable[[Network, int], None]) -> None:
        """Any request that is on its way, to the store or to the etcd of a partition."""
        busy = [network for network in (self.world, *self.world.parts) if network.network]
        if busy:
            network = self._random.choice(busy)
            move(network, self._random.randrange(len(network.network)))


def first_violation(make: Callable[[], DeletionWorld], seeds: range) -> str | None:
    for seed in seeds:
        try:
            DeletionWalk(make(), seed).run()
        except (Violation, AssertionError, SegmentError) as broken:
            return f"{seed}: {broken!r}"
    return None


def test_no_walk_breaks_a_law() -> None:
    assert first_violation(DeletionWorld, range(150)) is None


@pytest.mark.parametrize("name", DELETION_FLAWS)
def test_a_planted_flaw_is_found(name: str) -> None:
    assert first_violation(DELETION_FLAWS[name], range(600)) is not None


def first_loss(make: Callable[[], LossWorld], seeds: range) -> str | None:
    for seed in seeds:
        world = make()
        try:
            DeletionWalk(world, seed).lose(world)
        except (Violation, AssertionError, SegmentError) as broken:
            return f"{seed}: {broken!r}"
    return None


def test_no_copy_of_a_committed_record_goes_when_etcd_goes_back() -> None:
    assert first_loss(LossWorld, range(80)) is None


def test_a_deleter_that_does_not_look_at_the_history_is_found() -> None:
    found = first_loss(Unverified, range(300))
    assert found is not None
    assert "the only copy of" in found
