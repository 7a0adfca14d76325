"""A partition whose settling always fails stops no other, in arbitrary orders."""

from __future__ import annotations

import random
from collections.abc import Callable

from kafscale.produce.log.model import Want
from kafscale.produce.log.writer import PartitionWriter
from stuck_world import StuckPartition, StuckWorld
from writer_clients import Violation

STEPS = 160


class StuckWalk:
    """Each walk is repeatable from its seed."""

    def __init__(self, world: StuckWorld, seed: int) -> None:
        self.world = world
        self._random = random.Random(seed)
        self._moves: list[tuple[int, Callable[[], None]]] = [
            (30, lambda: self._part().send_plain(0)),
            (20, self._deliver),
            (20, lambda: world.tick(self._random.choice((0, 60, 300, 300, 2_000)))),
            (6, lambda: self._part().settle(self._random.randrange(4))),
            (1, lambda: world.claim(self._random.randrange(len(world.parts)), 0)),
            (1, lambda: world.give_up(self._random.randrange(8))),
        ]

    def run(self) -> None:
        moves, weights = [move for _, move in self._moves], [weight for weight, _ in self._moves]
        for move in self._random.choices(moves, weights, k=STEPS):
            move()
        self.world.check_the_free()
        self.world.heal()

    def _part(self) -> StuckPartition:
        part = self._random.choice(self.world.parts)
        assert isinstance(part, StuckPartition)
        return part

    def _deliver(self) -> None:
        busy = [network for network in (self.world, *self.world.parts) if network.network]
        if busy:
            network = self._random.choice(busy)
            network.deliver(self._random.randrange(len(network.network)))


def first_violation(make: Callable[[], StuckWorld], seeds: range) -> str | None:
    for seed in seeds:
        try:
            StuckWalk(make(), seed).run()
        except (Violation, AssertionError) as broken:
            return f"{seed}: {broken!r}"
    return None


class _Hopeful(PartitionWriter):
    def wants(self) -> Want | None:
        """Asks whether the tail has room now."""
        return self._pipeline.wants(99, committing=self._ledger.committing) if self._ledger.room else None


class _HopefulPartition(StuckPartition):
    writer_type = _Hopeful


class SealWithoutRoom(StuckWorld):
    """A partition wants to be sealed as long as its tail is not full: also when flights need the room."""

    partition_type = _HopefulPartition


def test_no_walk_breaks_a_law() -> None:
    assert first_violation(StuckWorld, range(30)) is None


def test_slices_without_room_are_found() -> None:
    found = first_violation(SealWithoutRoom, range(30))
    assert found is not None
    assert "in flight" in found
