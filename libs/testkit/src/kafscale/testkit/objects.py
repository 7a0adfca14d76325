"""Object stores for tests: fixtures of the three adapters, and a store that fails by script.

Every fault of FaultyStore is either set request by request or drawn from a seed, so a failing run can be
repeated.
"""

import asyncio
import contextlib
import enum
import os
import random
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    Doomed,
    MemoryStore,
    Metadata,
    ObjectInfo,
    ObjectStore,
    Outcome,
    StoreConfig,
    StoreError,
    StoreFull,
    StoreUnavailable,
    open_store,
)
from kafscale.storage.objects.port import delete_singly
from kafscale.testkit.seaweed import SeaweedServer

T = TypeVar("T")


class CountingStore(MemoryStore):
    """Remembers the reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.bytes_read = 0

    def forget(self) -> None:
        self.read.clear()
        self.bytes_read = 0

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        found = await super().get(key, if_match=if_match, start=start, end=end)
        self.read.append(key)
        self.bytes_read += len(found)
        return found


class Fault(enum.Enum):
    """A fault of one request."""

    UNAVAILABLE = "503, never applied"
    FULL = "refused for lack of room"
    DROP_REPLY = "applied, then the answer is lost"
    LATE = "the caller gets an error; applied when `deliver_late` is called"
    HOLD = "neither applied nor answered before `release`"
    BIT_FLIP = "GET answers with one bit wrong"
    TRUNCATE = "GET answers with the last byte missing"


Plan = Callable[[str, str], Fault | None]


def scripted(*steps: tuple[str, str, Fault]) -> Plan:
    """Each step (operation, part of the key, fault) applies once, to the first request that it matches."""
    left = deque(steps)

    def plan(operation: str, key: str) -> Fault | None:
        for step in left:
            if step[0] == operation and step[1] in key:
                left.remove(step)
                return step[2]
        return None

    return plan


def seeded(seed: int, *, rate: float, faults: Sequence[Fault], operations: Iterable[str] = ("put",)) -> Plan:
    """Each request of the operations fails with the probability `rate`. Equal seeds give equal sequences."""
    source = random.Random(seed)
    struck = frozenset(operations)

    def plan(operation: str, key: str) -> Fault | None:
        if operation not in struck or source.random() >= rate:
            return None
        return source.choice(faults)

    return plan


class FaultyStore:
    """A store in front of another. `plan` chooses the fault of each request; `requests` lists the requests."""

    def __init__(self, inner: ObjectStore, plan: Plan = lambda operation, key: None) -> None:
        self.inner = inner
        self.plan = plan
        self.bills_requests = inner.bills_requests
        self.puts_at_once_max = inner.puts_at_once_max
        self.conditional_delete = inner.conditional_delete
        self.requests: list[tuple[str, str]] = []
        self._late: list[Callable[[], Awaitable[object]]] = []
        self._released = asyncio.Event()

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        data = b"".join(body)  # a late request has the bytes of the time when it was sent
        return await self._write(
            "put", key, lambda: self.inner.put(key, [data], condition=condition, metadata=metadata)
        )

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        fault = await self._meet("get", key)
        data = await self.inner.get(key, if_match=if_match, start=start, end=end)
        if fault is Fault.BIT_FLIP and data:
            middle = len(data) // 2
            return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        return data[:-1] if fault is Fault.TRUNCATE else data

    async def head(self, key: str) -> ObjectInfo | None:
        await self._meet("head", key)
        return await self.inner.head(key)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        return await self._write("delete", key, lambda: self.inner.delete(key, if_match=if_match))

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        """Each deletion has its own fault, because a server's answer reports each one."""
        return await delete_singly(lambda key, etag: self.delete(key, if_match=etag), doomed)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._meet("list", prefix)
        async for info in self.inner.list(prefix, start_after=start_after):
            yield info

    async def probe(self) -> None:
        await self.inner.probe()

    async def close(self) -> None:
        await self.inner.close()

    @property
    def late_count(self) -> int:
        """Writes that are still in flight although their callers got an error."""
        return len(self._late)

    async def deliver_late(self) -> None:
        """Applies every late write now, in the order in which they were sent."""
        late, self._late = self._late, []
        for request in late:
            with contextlib.suppress(StoreError):  # the caller has its answer already
                await request()

    def release(self) -> None:
        """Releases held requests, and holds no later ones."""
        self._released.set()

    async def _meet(self, operation: str, key: str) -> Fault | None:
        self.requests.append((operation, key))
        fault = self.plan(operation, key)
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable(key, "503 SlowDown")
        if fault is Fault.HOLD:
            await self._released.wait()
        return fault

    async def _write(self, operation: str, key: str, request: Callable[[], Awaitable[T]]) -> T:
        fault = await self._meet(operation, key)
        if fault is Fault.FULL:
            raise StoreFull(key, "no space left")
        if fault is Fault.LATE:
            self._late.append(request)
            raise StoreUnavailable(key, "no answer yet")
        answer = await request()
        if fault is Fault.DROP_REPLY:
            raise StoreUnavailable(key, "connection reset")
        return answer


@pytest.fixture
def namespace() -> str:
    """A key prefix that no other test uses, for stores that outlive a test."""
    return f"t{uuid.uuid4().hex}"


@pytest.fixture(params=[True, False], ids=["attributes", "links"])
def directory_attributes(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    """Where a directory store keeps its records. The laws are the same for both."""
    if request.param:
        try:
            os.setxattr(tmp_path, "user.kafscale", b"1")
        except OSError:
            pytest.skip("this file system has no extended attributes")
    return bool(request.param)


@pytest.fixture
def memory_store() -> MemoryStore:
    return MemoryStore()


@pytest_asyncio.fixture
async def directory_store(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """The embedded store in the test's own directory, at `objects/`."""
    async with opened("directory", tmp_path, None) as store:
        yield store


@pytest_asyncio.fixture
async def s3_store(seaweed: SeaweedServer, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """A client of the run's S3 server. A test uses only its `namespace`."""
    async with opened("s3", tmp_path, seaweed) as store:
        yield store


@pytest.fixture(params=["memory", "directory", "s3"])
def object_store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def object_store(
    object_store_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ObjectStore]:
    """Each adapter in turn. A test uses only its `namespace`."""
    server = request.getfixturevalue("seaweed") if object_store_kind == "s3" else None
    async with opened(object_store_kind, tmp_path, server) as store:
        yield store


@contextlib.asynccontextmanager
async def opened(kind: str, directory: Path, server: SeaweedServer | None) -> AsyncIterator[ObjectStore]:
    """A store by the name of its kind, closed afterwards."""
    store: ObjectStore
    if kind == "memory":
        store = MemoryStore()
    elif kind == "directory":
        store = open_store(StoreConfig(kind="dir", directory=directory / "objects"))
    else:
        assert server is not None, "the S3 store needs its server"
        store = open_store(StoreConfig(kind="s3", s3=server.s3_config()))
    try:
        yield store
    finally:
        await store.close()
