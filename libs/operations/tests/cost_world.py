"""The produce service's own rules for sealing, run on a simulated clock: records arrive at random times, and a commit
follows each seal after the model's round trip."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from itertools import count

from kafscale.operations.cost.load import Tuning
from kafscale.produce.bundles.gather import Gather, GatherLimits, TokenBucket
from kafscale.produce.log.model import NEVER, Want

BURST = 20


class Clock:
    """Events in the order of their times."""

    def __init__(self, partitions: int, records_per_s: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._per_s = records_per_s
        self._numbers = count()
        self._queue: list[tuple[int, int, str, int]] = []
        self.now_ms = 0
        for partition in range(partitions):
            self.next_record(partition)

    def at(self, when_ms: int, kind: str, which: int = 0) -> None:
        heapq.heappush(self._queue, (when_ms, next(self._numbers), kind, which))

    def next_record(self, partition: int) -> None:
        self.at(self.now_ms + round(self._random.expovariate(self._per_s) * 1000), "record", partition)

    def events(self, until_ms: int) -> Iterator[tuple[str, int]]:
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, kind, which = heapq.heappop(self._queue)
            yield kind, which


HOLD_MS = GatherLimits().hold_max_ms


class Bundles:
    """An instance and its bundles."""

    def __init__(
        self, partitions: int, records_per_s: float, record_bytes: int, tuning: Tuning, seed: int = 1
    ) -> None:
        heads = tuning.head_commits_per_s
        self._clock = Clock(partitions, records_per_s, seed)
        self._bytes = record_bytes
        self._gather: Gather[int] = Gather(
            GatherLimits(linger_ms=tuning.linger_ms),
            bundles=TokenBucket(tuning.bundles_per_s, BURST),
            heads=TokenBucket(heads, heads),
        )
        self._open = [0] * partitions
        self._since_ms = [0] * partitions
        self._flying = [False] * partitions
        self._bundles: dict[int, list[int]] = {}
        self._armed_ms = NEVER
        self._seals: list[tuple[int, int]] = []
        self._flush_ms = tuning.flush_ms

    def per_s(self, warm_up_s: int, seconds: int) -> tuple[float, float]:
        """Bundles and slices."""
        for kind, which in self._clock.events((warm_up_s + seconds) * 1000):
            getattr(self, f"_{kind}")(which)
            self._look()
        counted = [slices for when_ms, slices in self._seals if when_ms >= warm_up_s * 1000]
        return len(counted) / seconds, sum(counted) / seconds

    def _record(self, which: int) -> None:
        if not self._open[which]:
            self._since_ms[which] = self._clock.now_ms
        self._open[which] += 1
        self._clock.next_record(which)
        self._want(which)

    def _committed(self, number: int) -> None:
        for which in self._bundles.pop(number):
            self._gather.decided(number, which, self._clock.now_ms)
            self._flying[which] = False
            self._want(which)

    def _timer(self, _: int) -> None:
        self._armed_ms = NEVER

    def _want(self, which: int) -> None:
        requests = self._open[which]
        hold_ms = HOLD_MS if self._flying[which] else 0
        want = Want(requests * self._bytes, requests, self._since_ms[which], hold_ms)
        self._gather.want(which, want if requests else None)

    def _look(self) -> None:
        now_ms = self._clock.now_ms
        while (sealing := self._gather.take(now_ms)) is not None:
            self._seals.append((now_ms, len(sealing.keys)))
            self._bundles[sealing.number] = sealing.keys
            self._clock.at(now_ms + self._flush_ms, "committed", sealing.number)
            for which in sealing.keys:
                self._open[which], self._flying[which] = 0, True
                self._want(which)
        due_ms = self._gather.due_ms(now_ms)
        if due_ms < self._armed_ms:
            self._armed_ms = max(due_ms, now_ms + 1)
            self._clock.at(self._armed_ms, "timer")
