"""Which partitions are sealed into the next bundle of an instance, and when: the whole decision.

Pure; all times are mono_ms. A partition with records *wants* to be sealed. It is *ready* unless it is held: for the
linger of its topic, and while a flight of its own is under way for `hold_max_ms`. With `held_bytes` it is ready in any
case. So a busy partition gathers records into large slices and does not hold up the others. The ready partitions are
sealed together when they have `bundle_bytes`, or the end of a transaction, or when no more requests are likely to come
soon (`company`).

At most IN_FLIGHT_MAX bundles are in flight. One that takes longer than STUCK_MS is not counted any more, so that a
stuck request to the store or to etcd blocks only the partitions in it; ALL_IN_FLIGHT_MAX bounds all together.

A store that bills its requests has a budget of bundles per second. A bundle waits for a token of it, but no longer
than `linger_max_ms`; one of `bundle_bytes` does not wait. A bundle with the marker of a transaction may take a token of
another budget instead: a transaction needs two bundles in turn, one for its records and one for its end.

Each slice costs a commit of its head in etcd, whose budget has no exception: when it is short, the partitions with the
most bytes times age go first, and a marker counts as MARKER_WEIGHT bytes, because consumers wait for it. A bundle of
theirs may be far below `bundle_bytes`, so it waits for its token. All budgets are the cluster's. Every instance that
accepts requests has an equal share, so more instances cost no more.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kafscale.produce.bundles.company import Company, Waited
from kafscale.produce.log.model import NEVER, Want

IN_FLIGHT_MAX: Final = 4
STUCK_MS: Final = 2_000
ALL_IN_FLIGHT_MAX: Final = 8
UNLIMITED: Final = 1 << 62
"""The level of a bucket without a rate."""
MARKER_WEIGHT: Final = 64 << 10

K = TypeVar("K", bound=Hashable)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherLimits:
    bundle_bytes: int = 4 << 20
    linger_ms: int = 5  # the longest wait for more requests
    held_bytes: int = 256 << 10
    hold_max_ms: int = 250
    linger_max_ms: int = 5_000  # the longest wait for a token


@dataclass(slots=True)
class _Flight(Generic[K]):
    sealed_ms: int
    requests: int  # without the ends of transactions, which no producer sends again
    undecided: set[K]


@dataclass(frozen=True, slots=True)
class Sealing(Generic[K]):
    """The partitions of one bundle; `number` names it until it is decided."""

    number: int
    keys: list[K]
    requests: int
    waited: Waited


class Gather(Generic[K]):
    """The shell reports every change of a want, seals what `take` names, and reports each outcome by `decided`."""

    def __init__(
        self,
        limits: GatherLimits,
        *,
        bundles: TokenBucket,
        heads: TokenBucket,
        markers: TokenBucket | None = None,  # None: markers have no budget of their own
    ) -> None:
        self._limits = limits
        self._bundles = bundles
        self._markers = markers
        self.marker_bundles = 0  # sealed with tokens of the markers' budget
        self._heads = heads
        self._ready = _Wants[K]()
        self._held: dict[K, Want] = {}
        self._held_until_ms = NEVER  # of the first of them, or earlier
        self._flights: dict[int, _Flight[K]] = {}
        self._numbers = 0
        self._company = Company(limits.linger_ms, limits.hold_max_ms)

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    @property
    def waiting(self) -> int:
        """Partitions with records that are in no bundle yet."""
        return len(self._ready.items) + len(self._held)

    def head_tokens_waiting(self, now_ms: int) -> int:
        """Partitions beyond what the budget of heads allows now."""
        return max(0, len(self._ready.items) - self._heads.level(now_ms))

    # --- what happens ------------------------------------------------------------------------

    def want(self, key: K, want: Want | None) -> None:
        """The open buffer of a partition changed; None: it is empty, or the partition is gone."""
        self._ready.drop(key)
        self._held.pop(key, None)
        if want is None:
            return
        if want.hold_ms > 0 and want.bytes < self._limits.held_bytes:
            self._held[key] = want
            self._held_until_ms = min(self._held_until_ms, want.held_until_ms)
        else:
            self._ready.put(key, want)

    def decided(self, number: int, key: K, now_ms: int) -> None:
        """The slice of this partition is committed, or will never be. The last one of a bundle ends its flight.

        Report what the partitions want before: requests that waited for this flight come with those that it answers.
        Sealed without the others, the two crowds would take turns for ever, in twice as many bundles.
        """
        flight = self._flights.get(number)
        if flight is None:
            return
        flight.undecided.discard(key)
        if not flight.undecided:
            del self._flights[number]
            took_ms = now_ms - flight.sealed_ms
            self._company.landed(flight.requests, self._ready.requests, took_ms, now_ms)

    def share(self, instances: int, now_ms: int) -> None:
        """So many instances of the cluster use the budgets."""
        self._bundles.share(instances, now_ms)
        if self._markers is not None:
            self._markers.share(instances, now_ms)
        self._heads.share(instances, now_ms)

    # --- the decision ------------------------------------------------------------------------

    def take(self, now_ms: int) -> Sealing[K] | None:
        """The bundle to seal now; None: none is due. Call it until it says None."""
        self._release_held(now_ms)
        self._company.gathers(self._ready.requests, now_ms)
        if self._ready_due_ms(now_ms) > now_ms:
            return None
        keys = self._members(now_ms)
        wants = [self._ready.items[key] for key in keys]
        self._pay(now_ms, markers=any(want.markers for want in wants))
        waited = self._company.sealed(self._ready.requests, now_ms)
        if self._follows_closely(now_ms):
            self._company.missed()
        for key in keys:
            self._ready.drop(key)
        self._company.gathers(self._ready.requests, now_ms)
        self._heads.take(len(keys), now_ms)
        self._numbers += 1
        returning = sum(want.requests for want in wants if not want.markers)
        self._flights[self._numbers] = _Flight(now_ms, returning, set(keys))
        return Sealing(self._numbers, keys, sum(want.requests for want in wants), waited)

    def _follows_closely(self, now_ms: int) -> bool:
        """The last bundle is still in flight, and would have carried these records if it had waited."""
        last = self._flights.get(self._numbers)
        return last is not None and 0 < now_ms - last.sealed_ms <= self._company.limit_ms

    def _pay(self, now_ms: int, *, markers: bool) -> None:
        if (
            self._markers is None
            or not markers
            or self._bundles.level(now_ms)
            or not self._markers.level(now_ms)
        ):
            self._bundles.take(1, now_ms)
        else:
            self._markers.take(1, now_ms)
            self.marker_bundles += 1

    def due_ms(self, now_ms: int) -> int:
        """When `take` may name a bundle, if nothing else happens; NEVER: not before something does."""
        return min(self._ready_due_ms(now_ms), self._held_until_ms)

    def _release_held(self, now_ms: int) -> None:
        """Partitions that were held long enough."""
        if self._held_until_ms > now_ms:
            return
        for key, want in list(self._held.items()):
            if want.held_until_ms <= now_ms:
                del self._held[key]
                self._ready.put(key, want)
        self._held_until_ms = min((want.held_until_ms for want in self._held.values()), default=NEVER)

    def _ready_due_ms(self, now_ms: int) -> int:
        limits, ready = self._limits, self._ready
        if not ready.items:
            return NEVER
        if ready.bytes >= limits.bundle_bytes and len(ready.items) <= self._heads.level(now_ms):
            due_ms = ready.since_ms
        elif ready.markers:  # consumers wait for it, and the producer's next transaction
            due_ms = self._with_token(ready.since_ms, now_ms)
        else:
            until_ms = self._company.until_ms(ready.requests, now_ms, in_flight=bool(self._flights))
            due_ms = self._with_token(until_ms, now_ms)
        return max(due_ms, self._place_ms(now_ms), self._heads.ready_ms(now_ms))

    def _with_token(self, due_ms: int, now_ms: int) -> int:
        overdue_ms = self._ready.since_ms + self._limits.linger_max_ms
        token_ms = self._bundles.ready_ms(now_ms)
        if self._markers is not None and self._ready.markers:
            token_ms = min(token_ms, self._markers.ready_ms(now_ms))
        return max(due_ms, min(token_ms, overdue_ms))

    def _place_ms(self, now_ms: int) -> int:
        """When one more bundle may be in flight."""
        if len(self._flights) >= ALL_IN_FLIGHT_MAX:
            return NEVER
        counted = sorted(
            flight.sealed_ms for flight in self._flights.values() if flight.sealed_ms + STUCK_MS > now_ms
        )
        return now_ms if len(counted) < IN_FLIGHT_MAX else counted[-IN_FLIGHT_MAX] + STUCK_MS

    def _members(self, now_ms: int) -> list[K]:
        """As many as the budget of heads allows, and until the bundle is full."""
        ready, room = self._ready.items, self._heads.level(now_ms)
        chosen = list(ready)
        if len(chosen) > room:
            chosen = heapq.nlargest(room, ready, key=lambda key: _need(ready[key], now_ms))
        size = 0
        for count, key in enumerate(chosen, start=1):
            size += ready[key].bytes
            if size >= self._limits.bundle_bytes:
                return chosen[:count]
        return chosen


class _Wants(Generic[K]):
    """Wants with their sums at hand. `since_ms` is that of the oldest."""

    __slots__ = ("_stale", "_since_ms", "bytes", "items", "markers", "requests")

    def __init__(self) -> None:
        self.items: dict[K, Want] = {}
        self.bytes = 0
        self.requests = 0
        self.markers = 0  # partitions with one
        self._since_ms = NEVER
        self._stale = False  # the oldest has left

    @property
    def since_ms(self) -> int:
        if self._stale:
            self._since_ms = min((want.since_ms for want in self.items.values()), default=NEVER)
            self._stale = False
        return self._since_ms

    def put(self, key: K, want: Want) -> None:
        self.items[key] = want
        self.bytes += want.bytes
        self.requests += want.requests
        self.markers += want.markers
        if not self._stale:
            self._since_ms = min(self._since_ms, want.since_ms)

    def drop(self, key: K) -> None:
        want = self.items.pop(key, None)
        if want is None:
            return
        self.bytes -= want.bytes
        self.requests -= want.requests
        self.markers -= want.markers
        self._stale = self._stale or want.since_ms <= self._since_ms


def _need(want: Want, now_ms: int) -> int:
    weight = want.bytes + (MARKER_WEIGHT if want.markers else 1)
    return weight * (now_ms - want.since_ms + 1)
