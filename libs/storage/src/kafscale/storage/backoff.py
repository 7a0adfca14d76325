"""Exponential backoff with jitter: the wait doubles from first_ms to cap_ms; each is drawn from its upper half."""

import asyncio
import random

from kafscale.storage.system import random_source


class Backoff:
    """The jitter keeps a hundred processes from retrying at the same moment."""

    __slots__ = ("_cap_ms", "_first_ms", "_next_ms", "_random")

    def __init__(
        self, *, first_ms: int = 50, cap_ms: int = 2_000, source: random.Random | None = None
    ) -> None:
        assert 0 < first_ms <= cap_ms, "a backoff grows"
        self._first_ms = first_ms
        self._cap_ms = cap_ms
        self._next_ms = first_ms
        self._random = source  # most never wait, and then need none

    def next_s(self) -> float:
        """The next wait; the one after it is twice as long, up to cap_ms."""
        if self._random is None:
            self._random = random_source()
        wait_ms = self._next_ms * self._random.uniform(0.5, 1.0)
        self._next_ms = min(self._next_ms * 2, self._cap_ms)
        return wait_ms / 1000

    async def sleep(self) -> None:
        await asyncio.sleep(self.next_s())

    def reset(self) -> None:
        """After a success: the next wait is the first again."""
        self._next_ms = self._first_ms
