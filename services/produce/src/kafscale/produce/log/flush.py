"""When the open buffer of a partition is sealed into a segment: the whole decision. Pure; all times are mono_ms.

The buffer is sealed at the first of these moments:
- it holds `seal_bytes`;
- no segment of the partition is on its way to its commit, and every producer that the last commit acknowledged has sent
  again: at once. Otherwise `linger_min_ms` after the first batch, or later if those producers need longer to come back;
- `flush_interval_ms` after its first batch, also while segments are on their way.
It is not sealed by time while `pipeline_max` segments are sealed and not committed.

Batching continues until the commit of the segment before, and not only until its upload: that makes one flush of two
wherever requests are small and CPU is short.

A store that bills its requests has a budget of segments per second, which all partitions of an instance share
(`FlushBudget`). Then the due time only asks for a place in the budget, once for each buffer. The buffer is sealed with
the grant, or without one `budget_linger_max_ms` after its first batch. A full buffer needs no grant.

`settings.limits_of` fills `FlushLimits` from the settings and the topic; services/produce/README.md lists the knobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

NEVER = 1 << 62
"""A time that does not come."""
BURST_FLUSHES = 20
UNLIMITED = 1 << 62
"""The level of a bucket without a rate."""
_REGATHER_SHARE = 2

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLimits:
    """What decides about a flush, of one topic."""

    segment_bytes: int = 1 << 30
    seal_bytes_max: int = 4 << 20  # sealed at min(segment_bytes, this)
    pipeline_max: int = 4  # sealed and not yet committed
    linger_min_ms: int = 5  # what an idle partition waits; the store says (0: requests cost nothing)
    linger_whole: bool = False  # the topic set its linger: it does not end when all producers are back
    flush_interval_ms: int = 250  # the longest a record waits to be sealed while uploads are under way
    budgeted: bool = False  # seals by time need a grant of the budget
    budget_linger_max_ms: int = 5_000  # sealed by then without a grant
    bundled: bool = False  # the instance seals by time, many partitions at once
    direct_bytes: int = 1 << 20  # and a partition with as much seals for itself

    @property
    def seal_bytes(self) -> int:
        return min(self.segment_bytes, self.seal_bytes_max)

    @property
    def full_bytes(self) -> int:
        """A buffer of so many bytes is sealed at once, with objects of its own."""
        return min(self.seal_bytes, self.direct_bytes) if self.bundled else self.seal_bytes


class FlushPolicy:
    """The decision for one partition. The writer reports what happens to its open buffer, and asks when it is due."""

    __slots__ = (
        "_asked",
        "_expected_requests",
        "_full_bytes",
        "_granted",
        "_limits",
        "_regather_until_ms",
        "_sealed_ms",
        "opened_ms",
    )

    def __init__(self, limits: FlushLimits) -> None:
        self.configure(limits)
        self.opened_ms = NEVER  # of the first batch; NEVER: the buffer is empty
        self._asked = False  # for a place in the budget
        self._granted = False
        self._sealed_ms = 0  # the buffer before
        self._expected_requests = NEVER  # requests beyond which a buffer does not wait
        self._regather_until_ms = 0

    def configure(self, limits: FlushLimits) -> None:
        self._limits = limits
        self._full_bytes = limits.full_bytes

    # --- what happens ------------------------------------------------------------------------

    def opened(self, now_ms: int) -> None:
        """The buffer takes its first batch."""
        self.opened_ms = now_ms

    def sealed(self, now_ms: int) -> None:
        """The buffer became a segment; the next one is empty."""
        self._sealed_ms = now_ms
        self.opened_ms = NEVER
        self._asked = self._granted = False

    def acknowledged(self, returning: int, waiting: int, now_ms: int) -> None:
        """A commit is about to answer `returning` requests, whose clients will send their next ones at once;
        `waiting` others are in the buffer already.

        Sealed at this moment, the buffer would hold only those that came meanwhile: two crowds would take
        turns for ever, at twice the flushes, and each would wait for the other's as well as for its own.
        """
        self._expected_requests = returning + waiting
        self._regather_until_ms = now_ms + (now_ms - self._sealed_ms) // _REGATHER_SHARE

    def granted(self) -> None:
        """The budget has a place for this partition."""
        self._granted = True

    # --- the decision ------------------------------------------------------------------------

    def is_full(self, size: int) -> bool:
        """Whether a buffer of `size` bytes is sealed now, whatever the time is."""
        return size >= self._full_bytes

    def due_ms(self, requests: int, pipeline: int, *, under_way: bool) -> int:
        """When time alone seals the buffer, in which `requests` wait, or asks for a place in the budget.

        `pipeline`: segments that are sealed and not yet in a transaction. `under_way`: some are not committed yet.
        """
        limits = self._limits
        if self.opened_ms == NEVER or pipeline >= limits.pipeline_max:
            return NEVER
        due_ms = self.opened_ms + limits.flush_interval_ms
        if not under_way:
            due_ms = min(due_ms, self._gathered_ms(requests))
        if limits.budgeted and self._asked and not self._granted:
            return max(due_ms, self.opened_ms + limits.budget_linger_max_ms)
        return due_ms

    def hold_ms(self, *, under_way: bool) -> int:
        """How long after its first batch a buffer is kept out of bundles."""
        limits = self._limits
        if under_way:
            return limits.flush_interval_ms
        return min(limits.linger_min_ms, limits.flush_interval_ms) if limits.linger_whole else 0

    def _gathered_ms(self, requests: int) -> int:
        limits = self._limits
        if requests >= self._expected_requests and not limits.linger_whole:
            return self.opened_ms
        return max(self.opened_ms + limits.linger_min_ms, self._regather_until_ms)

    def may_seal(self, now_ms: int) -> bool:
        """Whether a buffer that is due needs no grant, or no more."""
        overdue = self.opened_ms + self._limits.budget_linger_max_ms <= now_ms
        return not self._limits.budgeted or self._granted or overdue

    def asks(self) -> bool:
        """Whether a buffer that is due and may not be sealed asks for its grant now: once."""
        first, self._asked = not self._asked, True
        return first


class TokenBucket:
    """A rate with a burst. Without a rate there are always tokens."""

    def __init__(self, per_s: float | None, burst: int, now_ms: int = 0) -> None:
        self._whole_per_ms = self._per_ms = None if per_s is None else per_s / 1000
        self._burst = burst
        self._tokens = float(burst)
        self._filled_ms = now_ms

    def share(self, instances: int, now_ms: int) -> None:
        """From now on it gets its part of the rate: the rate is that of so many instances together."""
        self._fill(now_ms)
        if self._whole_per_ms is not None:
            self._per_ms = self._whole_per_ms / max(1, instances)

    def level(self, now_ms: int) -> int:
        """Whole tokens at hand."""
        self._fill(now_ms)
        return UNLIMITED if self._per_ms is None else max(0, int(self._tokens))

    def take(self, tokens: int, now_ms: int) -> None:
        """Also more than there are: then the bucket owes them, but never more than a burst."""
        self._fill(now_ms)
        self._tokens = max(self._tokens - tokens, -float(self._burst))

    def ready_ms(self, now_ms: int) -> int:
        """When there is a token: now, or later."""
        self._fill(now_ms)
        if self._per_ms is None or self._tokens >= 1:
            return now_ms
        return now_ms + int((1 - self._tokens) / self._per_ms) + 1

    def _fill(self, now_ms: int) -> None:
        if self._per_ms is None or now_ms <= self._filled_ms:
            return
        self._tokens = min(self._burst, self._tokens + (now_ms - self._filled_ms) * self._per_ms)
        self._filled_ms = now_ms


class FlushBudget(Generic[K]):
    """Spreads a budget of flushes over the partitions of an instance: a token bucket, with a queue of the partitions
    that found it empty.

    The law: over any second no more flushes pass than the rate and the burst allow, and among the waiting the one
    with the greatest need goes first, where need is bytes waiting times age, so a quiet partition is late but never
    starved. Without a rate (a store that bills nothing) every flush passes at once.
    """

    def __init__(self, flushes_per_s_max: int | None, now_ms: int = 0) -> None:
        rate = None if flushes_per_s_max is None else max(flushes_per_s_max, 1)
        self._bucket = TokenBucket(rate, BURST_FLUSHES, now_ms)
        self._waiting: dict[K, tuple[int, int]] = {}  # partition → (bytes, since ms)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def admit(self, key: K, bytes_waiting: int, now_ms: int) -> bool:
        """May this partition flush now? If not it is queued, and `due` will name it."""
        if not self._waiting and self._bucket.level(now_ms):
            self._bucket.take(1, now_ms)
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
        places = self._bucket.level(now_ms)
        granted = heapq.nlargest(places, self._waiting, key=lambda key: self._need(key, now_ms))
        for key in granted:
            del self._waiting[key]
        self._bucket.take(len(granted), now_ms)
        return granted

    def next_due_ms(self, now_ms: int) -> int | None:
        """When `due` will name a partition; None while none waits."""
        return self._bucket.ready_ms(now_ms) if self._waiting else None

    def _need(self, key: K, now_ms: int) -> int:
        bytes_waiting, since_ms = self._waiting[key]
        return (bytes_waiting + 1) * (now_ms - since_ms + 1)
