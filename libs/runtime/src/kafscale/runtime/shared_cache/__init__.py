"""A cache of segments in Redis that all instances share. Services read it before the object store, and never depend on
it."""

from kafscale.runtime.shared_cache.cache import Fill, SharedCache, SharedCacheLimits
from kafscale.runtime.shared_cache.opening import BadRedisUrl, CacheUnusable, open_shared_cache

__all__ = [
    "BadRedisUrl",
    "CacheUnusable",
    "Fill",
    "SharedCache",
    "SharedCacheLimits",
    "open_shared_cache",
]
