"""Opens the shared cache that the settings name. Without one, neither redis-py nor a secret is read."""

import asyncio

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.shared_cache.cache import SharedCache, SharedCacheLimits, SharedCacheMetrics
from kafscale.runtime.shared_cache.entries import CheckedEntries, Entries
from kafscale.runtime.shared_cache.secret_files import BadSecretFile, read_mac_keys, read_password
from kafscale.runtime.shared_cache.signed_entries import SignedEntries


class CacheUnusable(Exception):
    """The settings of the shared cache cannot be used. The text contains no secret."""


class BadRedisUrl(CacheUnusable):
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
    """The cache that the settings name; without one, redis-py is not imported. Reads the files of secrets; otherwise
    does no I/O.

    A task of `tasks` writes the fills and closes the connections. Raises CacheUnusable.
    """
    counted = SharedCacheMetrics(metrics)
    if settings.redis_url is None:
        return None
    from kafscale.runtime.shared_cache.redis_client import RedisClient

    password, entries = _secrets(settings)
    try:
        client = RedisClient(settings.redis_url.get_secret_value(), password)
    except (ValueError, TypeError):
        raise BadRedisUrl from None
    limits = SharedCacheLimits(
        timeout_ms=settings.redis_timeout_ms,
        max_object_bytes=settings.redis_max_object_bytes,
        ttl_ms=settings.redis_ttl_ms,
    )
    shared = SharedCache(client, limits, clock=clock, budget=budget, metrics=counted, entries=entries)
    tasks.create_task(shared.run(), name="shared-cache")
    return shared


def _secrets(settings: ServiceSettings) -> tuple[str | None, Entries]:
    """The password, and the entries that the keys make. Raises CacheUnusable."""
    password_file, keys_file = settings.redis_password_file, settings.redis_mac_key_file
    password, entries = None, CheckedEntries()
    try:
        if password_file is not None:
            password = read_password("KAFSCALE_REDIS_PASSWORD_FILE", password_file)
        if keys_file is not None:
            return password, SignedEntries(read_mac_keys("KAFSCALE_REDIS_MAC_KEY_FILE", keys_file))
    except BadSecretFile as error:
        raise CacheUnusable(str(error)) from error
    return password, entries
