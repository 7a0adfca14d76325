"""A cache of segments in Redis that all instances share. Services read it before the object store, and never depend on
it."""

from kafscale.runtime.shared_cache.cache import (
    BadRedisUrl,
    Fill,
    SharedCache,
    SharedCacheLimits,
    open_shared_cache,
)

__all__ = ["BadRedisUrl", "Fill", "SharedCache", "SharedCacheLimits", "open_shared_cache"]
