"""Segments kept in redis for all instances: asked before the object store, and never needed."""

from kafscale.runtime.shared_cache.cache import Fill, SharedCache, SharedCacheLimits
from kafscale.runtime.shared_cache.opening import BadRedisUrl, open_shared_cache

__all__ = ["BadRedisUrl", "Fill", "SharedCache", "SharedCacheLimits", "open_shared_cache"]
