"""Waiting longer after each failure: doubling from first_ms to cap_ms, each drawn from its upper half."""

import random


class Backoff:
    """The jitter keeps a hundred front doors from coming back to one service at the same moment."""

    __slots__ = ("_cap_ms", "_first_ms", "_next_ms", "_random")

    def __init__(
        self, *, first_ms: int = 50, cap_ms: int = 2_000, source: random.Random | None = None
    ) -> None:
        assert 0 < first_ms <= cap_ms, "a backoff grows"
        self._first_ms = first_ms
        self._cap_ms = cap_ms
        self._next_ms = first_ms
        self._random = source or random.Random()  # noqa: S311  (spreads load, hides nothing)

    def next_s(self) -> float:
        wait_ms = self._next_ms * self._random.uniform(0.5, 1.0)
        self._next_ms = min(self._next_ms * 2, self._cap_ms)
        return wait_ms / 1000

    def reset(self) -> None:
        self._next_ms = self._first_ms
