"""A shared cache over a redis, with what it counted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import MIB
from kafscale.runtime.shared_cache import SharedCache, SharedCacheLimits
from kafscale.runtime.shared_cache.cache import SharedCacheMetrics
from kafscale.runtime.shared_cache.entries import CheckedEntries, Entries
from kafscale.runtime.shared_cache.redis_client import RedisClient

OBJECT = b"records" * 1_000
PATIENT_MS = 10_000
KEY, ETAG = "default/orders/0/segment-1.kfs", "e1"


@dataclass(frozen=True, slots=True)
class Bench:
    cache: SharedCache
    metrics: SharedCacheMetrics
    budget: MemoryBudget

    async def get(self, data: bytes = OBJECT) -> bytes | None:
        found = await self.cache.get(KEY, ETAG, len(data))
        return None if found is None else bytes(found)

    async def fill(self, data: bytes = OBJECT) -> None:
        self.cache.fill(KEY, ETAG, (data,))
        await until(lambda: self.budget.used_bytes == 0)

    @property
    def state(self) -> float:
        return self.metrics.breaker.value


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENT_MS / 1000):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running(
    url: str,
    *,
    timeout_ms: int = PATIENT_MS,
    ttl_ms: int = 60_000,
    memory_bytes: int = 512 * MIB,
    entries: Entries | None = None,
) -> AsyncIterator[Bench]:
    limits = SharedCacheLimits(timeout_ms=timeout_ms, max_object_bytes=8 * MIB, ttl_ms=ttl_ms)
    metrics = SharedCacheMetrics(Metrics("fetch"))
    budget = MemoryBudget(memory_bytes)
    entries = entries or CheckedEntries()
    cache = SharedCache(
        RedisClient(url), limits, clock=SystemClock(), budget=budget, metrics=metrics, entries=entries
    )
    task = asyncio.create_task(cache.run())
    try:
        yield Bench(cache, metrics, budget)
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()
