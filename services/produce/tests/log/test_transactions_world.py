"""Transactions in several partitions of several instances, in arbitrary orders: the laws hold, and each mistake of an
owner that the model plants is found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from kafscale.log.segment import SegmentError
from transaction_flaws import PROTOCOL_FLAWS, ForgetClosing
from transaction_world import TransactionWorld
from transactions_world import TransactionPartition, TransactionsWorld
from writer_clients import Violation

STEPS = 250


class TransactionsWalk:
    """Each walk is repeatable from its seed."""

    def __init__(self, world: TransactionsWorld, seed: int) -> None:
        self.world = world
        chance = self._random = random.Random(seed)
        self._moves: list[tuple[int, Callable[[], None]]] = [
            (40, lambda: self._part().send_transactional(self._instance(), self._which())),
            (14, lambda: world.decide(self._which(), commit=chance.random() < 0.4)),
            (14, lambda: world.end(self._instance(), self._which())),
            (6, lambda: self._part().end(self._instance(), self._which())),
            (8, lambda: self._part().send_late(self._instance(), self._which())),
            (8, lambda: self._part().cross(self._instance(), self._which())),
            (6, lambda: world.lose_connections(self._which())),
            (40, self._deliver),
            (10, world.rush),
            (4, lambda: world.seal(self._instance())),
            (4, lambda: world.tick(chance.choice((0, 1, 60, 300, 2_000)))),
            (4, self._forget),
            (6, lambda: world.claim(chance.randrange(len(world.parts)), self._instance())),
            (2, lambda: world.pause(self._instance())),
            (4, lambda: world.resume(self._instance())),
            (1, lambda: world.crash(self._instance())),
            (1, lambda: world.give_up(chance.randrange(8))),
            (2, lambda: self._part().settle(chance.randrange(8))),
            (1, lambda: self._part().checkpoint(self._instance())),
        ]

    def run(self) -> None:
        for at in range(len(self.world.parts)):
            self.world.claim(at, at % self.world.instances)
        moves, weights = [move for _, move in self._moves], [weight for weight, _ in self._moves]
        for move in self._random.choices(moves, weights, k=STEPS):
            move()
            self.world.look()
        self.world.heal()

    def _instance(self) -> int:
        return self._random.randrange(self.world.instances)

    def _part(self) -> TransactionPartition:
        return self._random.choice(self.world.parts)

    def _which(self) -> int:
        """A producer without overlap, and one with it."""
        return self._random.randrange(2)

    def _deliver(self) -> None:
        self._on_request(lambda network, at: network.deliver(at))

    def _forget(self) -> None:
        self._on_request(lambda network, at: network.forget(at))

    def _on_request(self, move: Callable[[TransactionsWorld | TransactionPartition, int], None]) -> None:
        busy = [network for network in (self.world, *self.world.parts) if network.network]
        if busy:
            network = self._random.choice(busy)
            move(network, self._random.randrange(len(network.network)))


def world_of(flaw: type[TransactionWorld]) -> TransactionsWorld:
    """All its partitions have the flaw."""

    class Flawed(TransactionsWorld):
        partition_type = type(flaw.__name__, (flaw, TransactionPartition), {})

    return Flawed()


def first_violation(make: Callable[[], TransactionsWorld], seeds: range) -> str | None:
    for seed in seeds:
        try:
            TransactionsWalk(make(), seed).run()
        except (Violation, AssertionError, SegmentError) as broken:
            return f"{seed}: {broken!r}"
    return None


def test_no_walk_breaks_a_law() -> None:
    assert first_violation(TransactionsWorld, range(60)) is None


def test_walks_reach_what_they_are_for() -> None:
    reached = Counter[str]()
    for seed in range(20):
        world = TransactionsWorld()
        TransactionsWalk(world, seed).run()
        for part in world.parts:
            reached += part.reached
        for lane in world.parts[0].transactional:
            for number, (commit, _) in lane.decided.items():
                together = sum(number in other.decided for other in lane.lanes)
                reached["committed together" if commit else "aborted together"] += together > 1
    wanted = ("begun beside", "end of a join", "proof beside", "marker beside", "crossed")
    assert min(reached[what] for what in (*wanted, "committed together", "aborted together")) > 5, reached


@pytest.mark.parametrize("name", [*PROTOCOL_FLAWS, "forget_closing"])
def test_a_flaw_of_an_owner_is_found(name: str) -> None:
    flaw = PROTOCOL_FLAWS.get(name, ForgetClosing)
    assert first_violation(lambda: world_of(flaw), range(200)) is not None
