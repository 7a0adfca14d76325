"""Spreads a budget of billed PUTs over the partitions that want to flush.

Pure: `now_ms` is an argument. The law: over any second no more flushes pass than the rate and the
burst allow, and among the waiting the one with the greatest need goes first, where need is bytes
waiting times age, so a quiet partition is late but never starved. Without a rate (a store that
bills nothing) every flush passes at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BURST_FLUSHES = 20


class Governor(Generic[K]):
    """A token bucket with a queue of the partitions that found it empty."""

    def __init__(self, flushes_per_s_max: int | None, now_ms: int = 0) -> None:
        self._rate = None if flushes_per_s_max is None else max(flushes_per_s_max, 1) / 1000
        self._tokens = float(BURST_FLUSHES)
        self._filled_ms = now_ms
        self._waiting: dict[K, tuple[int, int]] = {}  # partition → (bytes, since ms)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def admit(self, key: K, bytes_waiting: int, now_ms: int) -> bool:
        """May this partition flush now? If not it is queued, and `due` will name it."""
        if self._rate is None:
            return True
        self._fill(now_ms)
        if not self._waiting and self._tokens >= 1:
            self._tokens -= 1
            return True
        _, since_ms = self._waiting.get(key, (0, now_ms))
        self._waiting[key] = (bytes_waiting, since_ms)
        return False

    def forget(self, key: K) -> None:
        self._waiting.pop(key, None)

    def due(self, now_ms: int) -> list[K]:
        """Those whose turn has come, most needy first; each takes its token."""
        if not self._waiting:
            return []
        self._fill(now_ms)
        granted = heapq.nlargest(int(self._tokens), self._waiting, key=lambda key: self._need(key, now_ms))
        for key in granted:
            del self._waiting[key]
        self._tokens -= len(granted)
        return granted

    def next_due_ms(self, now_ms: int) -> int | None:
        """When `due` will have somebody to name; None while nobody waits."""
        if not self._waiting or self._rate is None:
            return None
        self._fill(now_ms)
        missing = max(0.0, 1 - self._tokens)
        return now_ms + int(missing / self._rate) + 1 if missing else now_ms

    def _need(self, key: K, now_ms: int) -> int:
        bytes_waiting, since_ms = self._waiting[key]
        return (bytes_waiting + 1) * (now_ms - since_ms + 1)

    def _fill(self, now_ms: int) -> None:
        if self._rate is None or now_ms <= self._filled_ms:
            return
        self._tokens = min(BURST_FLUSHES, self._tokens + (now_ms - self._filled_ms) * self._rate)
        self._filled_ms = now_ms
