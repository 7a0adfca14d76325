"""Which of the partitions that want to flush by time may do so now: a queue by need, and two ways to hold it.

Pure: `now_ms` is an argument. Among the waiting the one with the greatest need goes first, where need is bytes
waiting times age, so a quiet partition is late but never starved. `Budget` is for stores that bill requests:
over any second no more flushes pass than the rate and the burst allow. `Turns`, in `turns`, is for the others.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BURST_FLUSHES = 20


class Governor(ABC, Generic[K]):
    """The queue of those that were not let pass."""

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[int, int]] = {}  # partition → (bytes, since ms)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @abstractmethod
    def admit(self, key: K, bytes_waiting: int, now_ms: int) -> bool:
        """May this partition flush now? If not it is queued, and `due` will name it."""

    @abstractmethod
    def due(self, now_ms: int) -> list[K]:
        """Those who may flush by now, most needy first; each is named once."""

    @abstractmethod
    def next_due_ms(self, now_ms: int) -> int | None:
        """When `due` will have somebody to name; None while nobody waits."""

    @abstractmethod
    def done(self, key: K) -> None:
        """What it was let pass for is committed, or was not needed any more."""

    def forget(self, key: K) -> None:
        self._waiting.pop(key, None)

    def _queue(self, key: K, bytes_waiting: int, now_ms: int) -> None:
        _, since_ms = self._waiting.get(key, (0, now_ms))
        self._waiting[key] = (bytes_waiting, since_ms)

    def _take(self, count: int, now_ms: int) -> list[K]:
        taken = heapq.nlargest(count, self._waiting, key=lambda key: self._need(key, now_ms))
        for key in taken:
            del self._waiting[key]
        return taken

    def _need(self, key: K, now_ms: int) -> int:
        bytes_waiting, since_ms = self._waiting[key]
        return (bytes_waiting + 1) * (now_ms - since_ms + 1)


class Budget(Governor[K]):
    """A token bucket."""

    def __init__(self, flushes_per_s_max: int, now_ms: int = 0) -> None:
        super().__init__()
        self._rate = max(flushes_per_s_max, 1) / 1000
        self._tokens = float(BURST_FLUSHES)
        self._filled_ms = now_ms

    def admit(self, key: K, bytes_waiting: int, now_ms: int) -> bool:
        self._fill(now_ms)
        if not self._waiting and self._tokens >= 1:
            self._tokens -= 1
            return True
        self._queue(key, bytes_waiting, now_ms)
        return False

    def due(self, now_ms: int) -> list[K]:
        if not self._waiting:
            return []
        self._fill(now_ms)
        granted = self._take(int(self._tokens), now_ms)
        self._tokens -= len(granted)
        return granted

    def next_due_ms(self, now_ms: int) -> int | None:
        if not self._waiting:
            return None
        self._fill(now_ms)
        missing = max(0.0, 1 - self._tokens)
        return now_ms + int(missing / self._rate) + 1 if missing else now_ms

    def done(self, key: K) -> None:
        """A token is spent."""

    def _fill(self, now_ms: int) -> None:
        if now_ms <= self._filled_ms:
            return
        self._tokens = min(BURST_FLUSHES, self._tokens + (now_ms - self._filled_ms) * self._rate)
        self._filled_ms = now_ms
