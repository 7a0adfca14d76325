"""A breadth-first search of every state that a configuration can reach."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tools.bundle_model.laws import bound_twice, broken, risen, tidied
from tools.bundle_model.loss import Loss
from tools.bundle_model.owner import Owner
from tools.bundle_model.state import Head, Limits, Log, Moves, Mutation, State, Writer
from tools.bundle_model.world import World


class Searched(NamedTuple):
    broken: str | None
    states: int
    moves: int
    depth: int
    seconds: float
    trace: tuple[str, ...] = ()
    """The steps that lead to the broken law."""


def initial() -> State:
    """Instance 0 owns both partitions, and nothing is written."""
    head = Head(revision=1, log=Log(epoch=1, owner=0, next=0, tail=(), manifest=()))
    return State(heads=(head, head), writers=((Writer(head), Writer(head)), (None, None)))


def search(limits: Limits, mutation: Mutation | None = None) -> Searched:
    """Ends with the first broken law, or when every state was seen. States are remembered by their 64-bit hash."""
    began, moves, first = time.monotonic(), 0, initial()
    came_from: dict[int, tuple[int, str] | None] = {hash(first): None}
    waiting = deque([(first, 0)])
    depth = 0
    while waiting:
        state, depth = waiting.popleft()
        for step, after in steps(state, limits, mutation):
            moves += 1
            one_history = not (state.went_back or after.went_back)
            wrong = risen(state, after) if one_history and after.heads is not state.heads else None
            after = tidied(after)
            key = hash(after)
            if key in came_from and not wrong:
                continue
            came_from[key] = (hash(state), step)
            wrong = wrong or broken(after, mutation)
            if len(after.bundles) > len(state.bundles):
                wrong = wrong or bound_twice(after)
            if wrong:
                trace = tuple(reversed(list(path(came_from, key))))
                return Searched(wrong, len(came_from), moves, depth + 1, time.monotonic() - began, trace)
            waiting.append((after, depth + 1))
    return Searched(None, len(came_from), moves, depth, time.monotonic() - began)


def steps(state: State, limits: Limits, mutation: Mutation | None) -> Moves:
    yield from Owner(limits, mutation).moves(state)
    yield from World(limits, mutation).moves(state)
    yield from Loss(limits).moves(state)


def path(came_from: dict[int, tuple[int, str] | None], key: int) -> Iterator[str]:
    while step := came_from[key]:
        key, text = step
        yield text
