"""Whether a client is over its limit, and how long it is throttled: windowed rates and token buckets.

Byte rates, request percentages and connection rates are rates over a window: the usage in the last 11 samples of 1 s,
divided by the time that these cover, at least 10 s. A client whose observed rate O is above its limit T over a window
of W is throttled for (O - T) / T * W: if the client pauses so long, the rate is T again. A token bucket counts the
mutations of topics, because it handles bursts better (KIP-599). Times are in milliseconds and never go back.
Sources: Rate, SampledStat, QuotaUtils, TokenBucket, ControllerMutationQuotaManager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

METERS_MAX: Final = 10_000
"""Meters that one table keeps. The one that was unused for longest is forgotten first.

A rate needs less than 2 KiB, so a table needs 20 MiB at most; only meters that were used in the last window are kept.
"""
LOOKS_MAX: Final = 2
"""The unused meters that one use of a table looks for."""
THROTTLE_MS_MAX: Final = 2**31 - 1
"""`throttle_time_ms` is 32 bits wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1_000


@dataclass(slots=True)
class _Sample:
    started_ms: int
    last_ms: int
    amount: float = 0.0


class WindowedRate:
    """The rate of one meter.

    A sample leaves the window when its last event is older than the window. Kafka keeps it as an empty sample, so
    that its W may be up to 1 s longer after a pause.
    """

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []

    def record(self, amount: float, now_ms: int) -> None:
        """Adds usage; a negative amount takes back what was not used after all."""
        self._drop_old(now_ms)
        if not self._samples or now_ms - self._samples[-1].started_ms >= self._window.sample_ms:
            self._samples.append(_Sample(now_ms, now_ms))
        self._samples[-1].amount += amount
        self._samples[-1].last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        self._drop_old(now_ms)
        return sum(sample.amount for sample in self._samples) / self.elapsed_ms(now_ms) * 1_000

    def left(self, limit: float, now_ms: int) -> float:
        """What may still be used before the rate is above the limit. Negative, if it is above."""
        return limit * self.elapsed_ms(now_ms) / 1_000 - sum(sample.amount for sample in self._samples)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken. Samples that are missing in the window count as empty ones."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - self._samples[0].started_ms if self._samples else 0
        missing = self._window.samples - 1 - elapsed_ms // self._window.sample_ms
        return elapsed_ms + max(0, missing) * self._window.sample_ms

    def throttle_ms(self, limit: float, now_ms: int, *, at_most_ms: int = THROTTLE_MS_MAX) -> int:
        """0 while the rate is not above the limit, and just above it, since the result is rounded.

        Request percentages and connections are throttled for one sample at most.
        """
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return min(at_most_ms, _rounded((rate - limit) / limit * self.elapsed_ms(now_ms)))

    def _drop_old(self, now_ms: int) -> None:
        window_ms = self._window.samples * self._window.sample_ms
        while self._samples and now_ms - self._samples[0].last_ms >= window_ms:
            del self._samples[0]

    def is_as_new(self, now_ms: int) -> bool:
        """Whether nothing is lost if it is forgotten."""
        self._drop_old(now_ms)
        return not self._samples


class TokenBucket:
    """The tokens of one meter. It is full at first and holds what the limit gives in the whole window of 11 s."""

    __slots__ = ("_burst_s", "_full_ms", "_refilled_ms", "_tokens")

    def __init__(self, window: Window) -> None:
        self._burst_s = window.samples * window.sample_ms / 1_000
        self._tokens: float | None = None
        self._refilled_ms = 0
        self._full_ms = 0.0

    def take(self, permits: float, limit: float, now_ms: int) -> int:
        """Takes permits unless the tokens are below zero. 0: taken. Otherwise nothing is taken: the throttle time.

        The last request may take more than there is: the bucket goes below zero (StrictControllerMutationQuota).
        """
        tokens = self._refill(limit, now_ms)
        throttle_ms = _throttle_ms(tokens, limit)
        if throttle_ms == 0:
            self._spend(permits, limit, now_ms)
        return throttle_ms

    def take_anyway(self, permits: float, limit: float, now_ms: int) -> int:
        """Takes permits always. For old versions, which know no error for it (PermissiveControllerMutationQuota)."""
        self._refill(limit, now_ms)
        return _throttle_ms(self._spend(permits, limit, now_ms), limit)

    def is_as_new(self, now_ms: int) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return now_ms >= self._full_ms

    def _spend(self, permits: float, limit: float, now_ms: int) -> float:
        """The tokens that are left."""
        assert self._tokens is not None, "it was refilled"
        self._tokens -= permits
        self._full_ms = now_ms + (self._burst_s - self._tokens / limit) * 1_000
        return self._tokens

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = limit * self._burst_s
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._refilled_ms) / 1_000)
        self._refilled_ms = now_ms
        return self._tokens


def _throttle_ms(tokens: float, limit: float) -> int:
    """The time in which the limit fills the tokens up to zero. Less than half a millisecond is nothing."""
    return _rounded(-tokens / limit * 1_000) if tokens < 0 else 0


_Key = TypeVar("_Key", bound=Hashable)
_Kept = TypeVar("_Kept", WindowedRate, TokenBucket)


class Meters(Generic[_Key, _Kept]):
    """Rates or buckets by key: a `quota.Meter` or an address. At most METERS_MAX of them.

    Those that are as new are forgotten first: each use looks at the oldest ones.
    """

    def __init__(self, make: Callable[[Window], _Kept], window: Window) -> None:
        self._make: Callable[[Window], _Kept] = make
        self._window = window
        self._kept: dict[_Key, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: _Key) -> _Kept | None:
        """The meter of the key, if it is kept."""
        return self._kept.get(key)

    def of(self, key: _Key, now_ms: int) -> _Kept:
        """The meter of the key, a new one if there is none."""
        kept = self._kept.pop(key, None)
        self._forget(now_ms)
        if kept is None:
            kept = self._make(self._window)
        self._kept[key] = kept
        return kept

    def _forget(self, now_ms: int) -> None:
        """Makes room for one."""
        for _ in range(min(LOOKS_MAX, len(self._kept))):
            oldest = next(iter(self._kept))
            if len(self._kept) < METERS_MAX and not self._kept[oldest].is_as_new(now_ms):
                return
            del self._kept[oldest]


def admit_connection(rate: WindowedRate, limit: float, window: Window, now_ms: int) -> int:
    """0: accept the connection; it counts. Otherwise hold it for the result, then close it; it does not count.

    Source: ConnectionQuotas.recordIpConnectionMaybeThrottle.
    """
    rate.record(1, now_ms)
    throttle_ms = rate.throttle_ms(limit, now_ms, at_most_ms=window.sample_ms)
    if throttle_ms:
        rate.record(-1, now_ms)
    return throttle_ms


def fetch_bytes_max(rate: WindowedRate, limit: float, window: Window, now_ms: int) -> int:
    """The bytes that one fetch may return: what is left of the window, and at least what the limit gives in a sample.

    Kafka allows the bytes of a whole window (ClientQuotaManager.maxValueInQuotaWindow) and sends nothing if the answer
    then exceeds the limit. Here what was read is sent, so that a fetch exceeds the limit by one sample at most.
    """
    return max(1, int(rate.left(limit, now_ms)), int(limit * window.sample_ms / 1_000))


def _rounded(throttle_ms: float) -> int:
    """Java's Math.round, at most the largest value of the field."""
    return min(THROTTLE_MS_MAX, math.floor(throttle_ms + 0.5))
