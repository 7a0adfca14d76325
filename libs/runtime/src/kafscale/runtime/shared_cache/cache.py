"""The shared cache. Reads never fail and fills never block: an error here costs only speed.

A read has a deadline that grows with the object, and a circuit breaker stops the calls to a server that does not
answer. Fills wait in a queue of bounded length and bytes. Their bytes count in the process's memory budget; beyond a
bound, fills are dropped. A value that does not pass for the object (`entries.py`) is deleted, and is a miss.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import structlog
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import MIB
from kafscale.runtime.shared_cache.breaker import Breaker, BreakerState, CacheUnavailable
from kafscale.runtime.shared_cache.entries import Entries, ObjectName
from kafscale.wire.buffers import Buffer

if TYPE_CHECKING:
    from kafscale.runtime.shared_cache.redis_client import RedisClient

log = structlog.get_logger(__name__)
T = TypeVar("T")
B = TypeVar("B", bytes, memoryview)

FILLS_WAITING_MAX: Final = 1_024
FILL_BYTES_MAX: Final = 64 * MIB
FILL_SHARE: Final = 0.9
"""Share of the memory budget beyond which fills are dropped, so that requests keep the rest."""
FILLERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCacheLimits:
    """timeout_ms is per MiB of the object or part of it, and includes the wait for a connection."""

    timeout_ms: int
    max_object_bytes: int
    ttl_ms: int

    def timeout_s(self, size: int) -> float:
        return self.timeout_ms * max(1, -(-size // MIB)) / 1000


class Fill(NamedTuple):
    """An object to be written to the cache; its bytes are reserved."""

    name: ObjectName
    parts: Sequence[Buffer]
    size: int
    in_ranges: bool


class SharedCacheMetrics:
    """All zero if no shared cache is configured."""

    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter
        self.hits = counter("shared_cache_hits_total")
        self.misses = counter("shared_cache_misses_total")
        self.skips = counter("shared_cache_skips_total")
        self.errors = counter("shared_cache_errors_total")
        self.corrupt = counter("shared_cache_corrupt_total")
        self.rejected = counter("shared_cache_rejected_total")
        self.fills = counter("shared_cache_fills_total")
        self.dropped = counter("shared_cache_dropped_fills_total")
        self.read_bytes = counter("shared_cache_read_bytes_total")
        self.written_bytes = counter("shared_cache_written_bytes_total")
        self.breaker = metrics.gauge("shared_cache_breaker_state")
        self.seconds = metrics.histogram("shared_cache_seconds")


class SharedCache:
    """For one event loop. `run` it in a task: it writes the fills."""

    def __init__(
        self,
        client: "RedisClient",
        limits: SharedCacheLimits,
        *,
        clock: Clock,
        budget: MemoryBudget,
        metrics: SharedCacheMetrics,
        entries: Entries,
    ) -> None:
        self._entries = entries
        self._client = client
        self._limits = limits
        self._clock = clock
        self._budget = budget
        self._metrics = metrics
        self._breaker = Breaker()
        self._fills: asyncio.Queue[Fill] = asyncio.Queue(FILLS_WAITING_MAX)
        self._fill_bytes = 0

    async def get(self, object_key: str, etag: str, size: int) -> memoryview | None:
        """The object of `size` bytes, which was not filled `in_ranges`; None if the cache lacks it, or on any error."""
        if size > self._limits.max_object_bytes or not self._may_call():
            return None
        name, entries = ObjectName(object_key, etag), self._entries
        try:
            value = await self._called(self._whole(name, size), size)
        except (CacheUnavailable, TimeoutError):
            return None
        if value is None:
            self._metrics.misses.inc()
            return None
        found = await self._worked(size, lambda: entries.opened(name, value, size))
        return await self._counted(name, found)

    async def get_range(self, object_key: str, etag: str, start: int, end: int) -> bytes | None:
        """Bytes [start, end) of an object that was filled `in_ranges`, whose size the caller need not know; None if the
        cache lacks them, or on any error. A checksum covers the whole object: the caller checks the range, and calls
        `discard`."""
        if not start < end <= self._limits.max_object_bytes or not self._may_call():
            return None
        name, entries = ObjectName(object_key, etag), self._entries
        first, last = entries.extent(start, end)
        try:
            value = await self._called(
                self._client.get_range(entries.key(name), first, last - 1), last - first
            )
        except (CacheUnavailable, TimeoutError):
            return None
        if not value:
            self._metrics.misses.inc()
            return None
        found = await self._worked(end - start, lambda: entries.opened_range(name, value, start, end))
        return await self._counted(name, found)

    async def discard(self, object_key: str, etag: str) -> None:
        """Deletes an entry whose content is wrong."""
        await self._delete_damaged(ObjectName(object_key, etag))

    def fill(self, object_key: str, etag: str, parts: Sequence[Buffer]) -> None:
        """Queues the object, or drops it if there is no room. The parts must not change any more."""
        fill = self.prepare(object_key, etag, parts)
        if fill is not None:
            self.submit(fill)

    def prepare(
        self, object_key: str, etag: str, parts: Sequence[Buffer], *, in_ranges: bool = False
    ) -> Fill | None:
        """Reserves memory for a fill, for `submit` or `give_up` later; None if there is no room. `in_ranges`: readers
        use `get_range`."""
        size = sum(map(len, parts))
        if size > self._limits.max_object_bytes:
            return None
        if self._fill_bytes + size > FILL_BYTES_MAX or not self._budget.reserve(size, share=FILL_SHARE):
            self._metrics.dropped.inc()
            return None
        self._fill_bytes += size
        return Fill(ObjectName(object_key, etag), parts, size, in_ranges)

    def submit(self, fill: Fill) -> None:
        try:
            self._fills.put_nowait(fill)
        except asyncio.QueueFull:
            self._metrics.dropped.inc()
            self.give_up(fill)

    def give_up(self, fill: Fill) -> None:
        self._fill_bytes -= fill.size
        self._budget.release(fill.size)

    async def run(self) -> None:
        """Writes the fills until cancelled, then closes the connections."""
        try:
            async with asyncio.TaskGroup() as fillers:
                for _ in range(FILLERS):
                    fillers.create_task(self._make_fills())
        finally:
            await self._client.close()

    async def _make_fills(self) -> None:
        while True:
            fill = await self._fills.get()
            try:
                await self._make(fill)
            finally:
                self.give_up(fill)

    async def _make(self, fill: Fill) -> None:
        if not self._may_call():
            return
        name, entries = fill.name, self._entries
        value = await self._worked(
            fill.size, lambda: entries.sealed(name, fill.parts, in_ranges=fill.in_ranges)
        )
        put = self._client.set(entries.key(name), value, ttl_ms=self._limits.ttl_ms)
        try:
            await self._called(put, fill.size)
        except (CacheUnavailable, TimeoutError):
            return
        self._metrics.fills.inc()
        self._metrics.written_bytes.inc(fill.size)

    async def _whole(self, name: ObjectName, size: int) -> bytes | None:
        key, extent = self._entries.key(name), self._entries.whole(size)
        if extent is None:
            return await self._client.get(key)
        return await self._client.get_range(key, extent[0], extent[1] - 1) or None

    # -- entries -------------------------------------------------------------------------------------

    async def _worked(self, size: int, work: Callable[[], T]) -> T:
        """Does work on `size` bytes, in a thread if it would hold up the event loop."""
        longest = self._entries.inline_bytes_max
        return work() if longest is None or size <= longest else await asyncio.to_thread(work)

    async def _counted(self, name: ObjectName, found: B | None) -> B | None:
        """What was found; without it the value was not the object, and is deleted."""
        if found is None:
            self._metrics.misses.inc()
            await self._refuse(name)
            return None
        self._metrics.hits.inc()
        self._metrics.read_bytes.inc(len(found))
        return found

    async def _refuse(self, name: ObjectName) -> None:
        if not self._entries.are_signed:
            await self._delete_damaged(name)
            return
        key = self._entries.key(name)
        self._metrics.rejected.inc()
        log.warning("shared cache entry rejected", key=key, why="no key of this process signed it")
        await self._delete(key)

    async def _delete_damaged(self, name: ObjectName) -> None:
        key = self._entries.key(name)
        self._metrics.corrupt.inc()
        log.warning("shared cache entry damaged", key=key)
        await self._delete(key)

    async def _delete(self, key: str) -> None:
        if not self._may_call():
            return
        try:
            await self._called(self._client.delete(key), 0)
        except (CacheUnavailable, TimeoutError):
            return

    # -- the breaker ---------------------------------------------------------------------------------

    def _may_call(self) -> bool:
        allowed = self._breaker.allow(self._clock.now_ms())
        if not allowed:
            self._metrics.skips.inc()
        return allowed

    async def _called(self, call: Awaitable[T], size: int) -> T:
        """Makes a call within the deadline and reports its outcome to the breaker. Raises CacheUnavailable,
        TimeoutError."""
        started_ms = self._clock.now_ms()
        before = self._breaker.state
        try:
            async with asyncio.timeout(self._limits.timeout_s(size)):
                answer = await call
            self._breaker.succeeded()
            return answer
        except (CacheUnavailable, TimeoutError) as error:
            self._metrics.errors.inc()
            self._breaker.failed(self._clock.now_ms())
            if before is BreakerState.CLOSED and self._breaker.state is BreakerState.OPEN:
                log.warning("shared cache unavailable", reason=str(error) or "no answer in time")
            raise
        finally:
            if before is not BreakerState.CLOSED and self._breaker.state is BreakerState.CLOSED:
                log.info("shared cache available")
            self._metrics.breaker.set(self._breaker.state)
            self._metrics.seconds.observe((self._clock.now_ms() - started_ms) / 1000)
