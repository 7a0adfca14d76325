"""The shared cache. Reads never fail and fills never block: an error here costs only speed.

A read has a deadline that grows with the object, and a circuit breaker stops the calls to a server that does not
answer. Fills wait in a queue of bounded length and bytes. Their bytes count in the process's memory budget; beyond a
bound, fills are dropped.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import structlog
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import MIB, ServiceSettings
from kafscale.runtime.shared_cache.breaker import Breaker, BreakerState
from kafscale.runtime.shared_cache.entries import HEAD_SIZE, entry_key, sealed, unsealed
from kafscale.wire.buffers import Buffer

if TYPE_CHECKING:
    from kafscale.runtime.shared_cache.redis_client import RedisClient

log = structlog.get_logger(__name__)
T = TypeVar("T")

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

    key: str
    parts: Sequence[Buffer]
    size: int


class CacheUnavailable(Exception):
    """The server did not answer, or not usefully. It may or may not have executed the call."""


class BadRedisUrl(Exception):
    """The text does not contain the URL, which may hold a password."""

    def __init__(self) -> None:
        super().__init__(
            "KAFSCALE_REDIS_URL has a database or an option that redis-py does not know: write redis://host:port/db, "
            "or rediss:// for TLS, with a user:password@ before the host where one is needed"
        )


class SharedCacheMetrics:
    """All zero if no shared cache is configured."""

    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter
        self.hits = counter("shared_cache_hits_total")
        self.misses = counter("shared_cache_misses_total")
        self.skips = counter("shared_cache_skips_total")
        self.errors = counter("shared_cache_errors_total")
        self.corrupt = counter("shared_cache_corrupt_total")
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
    ) -> None:
        self._client = client
        self._limits = limits
        self._clock = clock
        self._budget = budget
        self._metrics = metrics
        self._breaker = Breaker()
        self._fills: asyncio.Queue[Fill] = asyncio.Queue(FILLS_WAITING_MAX)
        self._fill_bytes = 0

    async def get(self, object_key: str, etag: str, size: int) -> memoryview | None:
        """The object of `size` bytes; None if the cache lacks it, or on any error."""
        if size > self._limits.max_object_bytes or not self._may_call():
            return None
        key = entry_key(object_key, etag)
        try:
            value = await self._called(self._client.get(key), size)
        except (CacheUnavailable, TimeoutError):
            return None
        if value is None:
            self._metrics.misses.inc()
            return None
        found = unsealed(value)
        if found is None or len(found) != size:
            self._metrics.misses.inc()
            await self._delete(key)
            return None
        self._metrics.hits.inc()
        self._metrics.read_bytes.inc(size)
        return found

    async def get_range(self, object_key: str, etag: str, start: int, end: int) -> bytes | None:
        """Bytes [start, end) of an object, whose size the caller need not know; None if the cache lacks them, or on any
        error. The entry's checksum covers the whole object: the caller checks the range, and calls `discard`."""
        if end > self._limits.max_object_bytes or not self._may_call():
            return None
        first = HEAD_SIZE + start
        ranged = self._client.get_range(entry_key(object_key, etag), first, HEAD_SIZE + end - 1)
        try:
            found = await self._called(ranged, end - start)
        except (CacheUnavailable, TimeoutError):
            return None
        if len(found) != end - start:
            self._metrics.misses.inc()
            return None
        self._metrics.hits.inc()
        self._metrics.read_bytes.inc(len(found))
        return found

    async def discard(self, object_key: str, etag: str) -> None:
        """Deletes an entry whose content is wrong."""
        await self._delete(entry_key(object_key, etag))

    def fill(self, object_key: str, etag: str, parts: Sequence[Buffer]) -> None:
        """Queues the object, or drops it if there is no room. The parts must not change any more."""
        fill = self.prepare(object_key, etag, parts)
        if fill is not None:
            self.submit(fill)

    def prepare(self, object_key: str, etag: str, parts: Sequence[Buffer]) -> Fill | None:
        """Reserves memory for a fill, for `submit` or `give_up` later; None if there is no room."""
        size = sum(map(len, parts))
        if size > self._limits.max_object_bytes:
            return None
        if self._fill_bytes + size > FILL_BYTES_MAX or not self._budget.reserve(size, share=FILL_SHARE):
            self._metrics.dropped.inc()
            return None
        self._fill_bytes += size
        return Fill(entry_key(object_key, etag), parts, size)

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
        put = self._client.set(fill.key, sealed(fill.parts), ttl_ms=self._limits.ttl_ms)
        try:
            await self._called(put, fill.size)
        except (CacheUnavailable, TimeoutError):
            return
        self._metrics.fills.inc()
        self._metrics.written_bytes.inc(fill.size)

    async def _delete(self, key: str) -> None:
        self._metrics.corrupt.inc()
        log.warning("shared cache entry damaged", key=key)
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


def open_shared_cache(
    settings: ServiceSettings,
    *,
    clock: Clock,
    budget: MemoryBudget,
    metrics: Metrics,
    tasks: asyncio.TaskGroup,
) -> SharedCache | None:
    """The cache that the settings name; without one, redis-py is not imported. Does no I/O.

    A task of `tasks` writes the fills and closes the connections. Raises BadRedisUrl.
    """
    counted = SharedCacheMetrics(metrics)
    if settings.redis_url is None:
        return None
    from kafscale.runtime.shared_cache.redis_client import RedisClient

    try:
        client = RedisClient(settings.redis_url.get_secret_value())
    except (ValueError, TypeError):
        raise BadRedisUrl from None
    limits = SharedCacheLimits(
        timeout_ms=settings.redis_timeout_ms,
        max_object_bytes=settings.redis_max_object_bytes,
        ttl_ms=settings.redis_ttl_ms,
    )
    shared = SharedCache(client, limits, clock=clock, budget=budget, metrics=counted)
    tasks.create_task(shared.run(), name="shared-cache")
    return shared
