"""What the shared cache needs of a server."""

from typing import Protocol


class CacheUnavailable(Exception):
    """No answer, or none that is of use. What it was asked to do may or may not have been done."""


class CacheClient(Protocol):
    """Each call waits as long as it takes: the caller has the deadline. Raises CacheUnavailable."""

    async def get(self, key: str) -> bytes | None: ...

    async def set(self, key: str, value: bytes, *, ttl_ms: int) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def close(self) -> None: ...
