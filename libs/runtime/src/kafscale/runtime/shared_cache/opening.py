"""Opens the shared cache that the settings name. Without one, redis-py is not imported."""

import asyncio

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.shared_cache.cache import SharedCache, SharedCacheLimits, SharedCacheMetrics


class BadRedisUrl(Exception):
    """The text does not contain the URL, which may hold a password."""

    def __init__(self) -> None:
        super().__init__(
            "KAFSCALE_REDIS_URL has a database or an option that redis-py does not know: write redis://host:port/db, "
            "or rediss:// for TLS, with a user:password@ before the host where one is needed"
        )


def open_shared_cache(
    settings: ServiceSettings,
    *,
    clock: Clock,
    budget: MemoryBudget,
    metrics: Metrics,
    tasks: asyncio.TaskGroup,
) -> SharedCache | None:
    """Does no I/O. A task of `tasks` writes the fills and closes the connections. Raises BadRedisUrl."""
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
