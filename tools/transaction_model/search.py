"""A breadth-first search of every state that a model can reach."""

from __future__ import annotations

import time
from array import array
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

Step = tuple[object, ...]
"""What happens, as words and values. They become a text only when a trace is printed."""
STATES_MAX = 6_000_000


class Model(Protocol[S]):
    def initial(self) -> S: ...

    def moves(self, state: S) -> Iterator[tuple[Step, S]]: ...

    def broken_step(self, before: S, after: S) -> str | None:
        """The first law over steps that this one breaks. The search asks about every step."""

    def broken_state(self, state: S) -> str | None:
        """The first law of states that the state breaks. The search asks about every state once."""


class Searched(NamedTuple):
    broken: str | None
    states: int
    depth: int
    seconds: float
    is_whole: bool = True
    """False: the search stopped at its limit of states."""
    trace: tuple[str, ...] = ()
    """The steps that lead to the broken law."""


def search(model: Model[S], states_max: int = STATES_MAX) -> Searched:
    """Ends with the first broken law, or when every state was seen. States are remembered by their 64-bit hash."""
    began, first, depth = time.monotonic(), model.initial(), 0
    seen = {hash(first)}
    parents, ways = array("q", [-1]), array("H", [0])
    layer = [(0, first)]
    while layer and len(seen) < states_max:
        depth += 1
        following: list[tuple[int, S]] = []
        for number, state in layer:
            for way, (_, after) in enumerate(model.moves(state)):
                wrong = model.broken_step(state, after)
                key = hash(after)
                if key not in seen:
                    seen.add(key)
                    following.append((len(parents), after))
                    parents.append(number)
                    ways.append(way)
                    wrong = wrong or model.broken_state(after)
                if wrong:
                    steps = (*_ways_to(number, parents, ways), way)
                    seconds = time.monotonic() - began
                    return Searched(wrong, len(seen), depth, seconds, trace=_trace(model, steps))
        layer = following
    return Searched(None, len(seen), depth, time.monotonic() - began, is_whole=not layer)


def _ways_to(number: int, parents: array[int], ways: array[int]) -> tuple[int, ...]:
    found = []
    while parents[number] >= 0:
        found.append(ways[number])
        number = parents[number]
    return tuple(reversed(found))


def _trace(model: Model[S], ways: tuple[int, ...]) -> tuple[str, ...]:
    """The texts of the steps, which are taken once more."""
    state, texts = model.initial(), []
    for way in ways:
        step, state = next(islice(model.moves(state), way, None))
        texts.append(" ".join(str(word) for word in step))
    return tuple(texts)
