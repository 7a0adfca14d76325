"""Random walks through a world, each repeatable from its seed.

The moves are weighted towards what breaks protocols: few keys, many writers, answers lost, requests
that arrive after their sender has gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from writer_clients import Violation
from writer_world import World

STEPS = 120


class Walk:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._random = random.Random(seed)
        self._moves: list[tuple[int, Callable[[], None]]] = [
            (14, self._send),
            (26, self._deliver),
            (6, lambda: self._on_request(lambda at: world.deliver(at, lose_answer=True))),
            (3, lambda: self._on_request(lambda at: world.deliver(at, keep=True))),
            (6, lambda: self._on_request(world.forget)),
            (2, lambda: self._on_request(world.drop)),
            (10, self._tick),
            (5, lambda: world.claim(self._instance())),
            (2, lambda: world.pause(self._instance())),
            (3, lambda: world.resume(self._instance())),
            (1, lambda: world.crash(self._instance())),
            (1, lambda: world.handoff(self._instance())),
            (4, lambda: world.checkpoint(self._instance(), fails=self._random.random() < 0.2)),
            (1, world.touch_meta),
            (3, lambda: world.janitor(self._random.randrange(64))),
            (1, lambda: world.lose_connection(self._random.randrange(2))),
        ]
        if seed % 4 == 0:
            self._moves.append((4, world.recreate_topic))
        self._weights = [weight for weight, _ in self._moves]

    def run(self, steps: int = STEPS) -> None:
        moves = [move for _, move in self._moves]
        self.world.claim(0)
        for move in self._random.choices(moves, self._weights, k=steps):
            move()
        self.world.heal()

    def _instance(self) -> int:
        return self._random.randrange(len(self.world.serving))

    def _send(self) -> None:
        serving = [n for n, owner in enumerate(self.world.serving) if owner is not None]
        if not serving:
            return
        instance = self._random.choice(serving)
        if self._random.random() < 0.5:
            self.world.send_plain(instance, self._random.randint(1, 2))
        else:
            self.world.send_idempotent(instance, self._random.randrange(2), count=self._random.randint(1, 2))

    def _deliver(self) -> None:
        self._on_request(self.world.deliver)

    def _on_request(self, move: Callable[[int], None]) -> None:
        """Old and new requests alike, with some weight on the newest."""
        waiting = len(self.world.network)
        if waiting:
            newest = self._random.random() < 0.3
            move(waiting - 1 if newest else self._random.randrange(waiting))

    def _tick(self) -> None:
        self.world.tick(self._random.choice((0, 1, 60, 300, 2_000)))


def first_violation(make: Callable[[], World], seeds: range, steps: int = STEPS) -> tuple[int, str] | None:
    """The first seed whose walk breaks a law, and which."""
    for seed in seeds:
        try:
            Walk(make(), seed).run(steps)
        except (Violation, AssertionError) as broken:
            return seed, repr(broken)
    return None
