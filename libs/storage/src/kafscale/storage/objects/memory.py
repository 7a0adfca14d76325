"""The object store in this process's memory, for tests and for trials with one process.

Every operation is one step of the event loop, so conditions are atomic by construction.
"""

import bisect
from collections.abc import AsyncIterator, Sequence
from types import MappingProxyType

import xxhash
from kafscale.storage.objects.port import (
    DELETES_MAX,
    NO_METADATA,
    Buffer,
    Condition,
    Doomed,
    IfAbsent,
    IfMatch,
    Metadata,
    ObjectInfo,
    ObjectNotFound,
    Outcome,
    PreconditionFailed,
    StoreFull,
    delete_singly,
)


class MemoryStore:
    """`bytes_max` limits the total size; beyond it a PUT raises StoreFull."""

    def __init__(self, *, bytes_max: int = 1 << 40) -> None:
        self.bills_requests = False
        self.puts_at_once_max: int | None = None
        self.conditional_delete = True
        self._bytes_max = bytes_max
        self._bytes = 0
        self._objects: dict[str, tuple[ObjectInfo, bytes]] = {}
        self._keys: list[str] = []

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        found = self._objects.get(key)
        self._check(key, found, condition)
        data = b"".join(body)
        held = len(found[1]) if found else 0
        if self._bytes - held + len(data) > self._bytes_max:
            raise StoreFull(key, f"the store holds at most {self._bytes_max} bytes")
        if found is None:
            bisect.insort(self._keys, key)
        etag = xxhash.xxh3_128_hexdigest(data)
        info = ObjectInfo(key=key, etag=etag, size=len(data), metadata=MappingProxyType(dict(metadata)))
        self._objects[key] = (info, data)
        self._bytes += len(data) - held
        return etag

    @staticmethod
    def _check(key: str, found: tuple[ObjectInfo, bytes] | None, condition: Condition) -> None:
        match condition:
            case None:
                return
            case IfAbsent():
                if found is not None:
                    raise PreconditionFailed(key, "exists")
            case IfMatch(etag):
                if found is None:
                    raise PreconditionFailed(key, "does not exist")
                if found[0].etag != etag:
                    raise PreconditionFailed(key, f"has etag {found[0].etag}, not {etag}")

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        found = self._objects.get(key)
        if found is None:
            raise ObjectNotFound(key)
        if if_match is not None and found[0].etag != if_match:
            raise PreconditionFailed(key, f"has etag {found[0].etag}, not {if_match}")
        return found[1][start:end]

    async def head(self, key: str) -> ObjectInfo | None:
        found = self._objects.get(key)
        return found[0] if found else None

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        found = self._objects.get(key)
        if found is None:
            return False
        if if_match is not None and found[0].etag != if_match:
            raise PreconditionFailed(key, f"has etag {found[0].etag}, not {if_match}")
        del self._objects[key]
        del self._keys[bisect.bisect_left(self._keys, key)]
        self._bytes -= len(found[1])
        return True

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        assert len(doomed) <= DELETES_MAX, len(doomed)
        return await delete_singly(lambda key, etag: self.delete(key, if_match=etag), doomed)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        after = max(prefix, start_after)
        while True:
            at = bisect.bisect_left(self._keys, after)
            if at < len(self._keys) and self._keys[at] <= start_after:
                at += 1
            if at >= len(self._keys) or not self._keys[at].startswith(prefix):
                return
            info = self._objects[self._keys[at]][0]
            yield ObjectInfo(key=info.key, etag=info.etag, size=info.size)
            after = start_after = info.key

    async def probe(self) -> None:
        """Conditions hold by construction."""

    async def close(self) -> None:
        """Nothing to release."""
