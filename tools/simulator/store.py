"""The object store of a simulation: one store in memory, which each process reaches over the network.

A request is sent, executed and answered at three moments. Faults are drawn for each request: it is refused and not
executed (503), executed and its answer lost, executed long after its caller has got an error, executed twice, or slow.
For a while the store may take no PUT at all, or be thin, so that each PUT takes seconds. Objects may be lost, replaced
or damaged without a request.
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import xxhash
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    Doomed,
    MemoryStore,
    Metadata,
    ObjectInfo,
    Outcome,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from kafscale.storage.objects.port import delete_singly
from kafscale.testkit.instances import InstanceLoop
from kafscale.testkit.memory_grpc.network import Network

T = TypeVar("T")
Kept = tuple[ObjectInfo, bytes]
"""An object as it was."""
NODE: Final = "store"
TIMEOUT_S: Final = 10.0
LATE_S: Final = (1.0, 40.0)
SLOW_S: Final = (0.5, 4.0)


@dataclass(slots=True)
class Rates:
    """The share of requests that meet each fault."""

    refused: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0


class Objects(MemoryStore):
    """With changes that no process of KafScale makes."""

    def lose(self, key: str) -> Kept:
        """The object is gone. What `give_back` wants."""
        kept = self._objects.pop(key)
        self._keys.remove(key)
        self._bytes -= len(kept[1])
        return kept

    def discard(self, key: str) -> None:
        """The object is gone, if there is one."""
        if key in self._objects:
            self.lose(key)

    def give_back(self, kept: Kept) -> None:
        """As an operator restores a version, with the etag that it had; whatever has the name now is replaced."""
        info, data = kept
        self.discard(info.key)
        self._objects[info.key] = kept
        bisect.insort(self._keys, info.key)
        self._bytes += len(data)

    def replace(self, key: str, data: bytes) -> Kept:
        """Another program writes to the key."""
        kept = self.lose(key)
        self.give_back((replace(kept[0], etag=xxhash.xxh3_128_hexdigest(data), size=len(data)), data))
        return kept

    def damage(self, key: str, at: int) -> Kept:
        """A byte changes below the store, so the etag stays."""
        kept = info, data = self.lose(key)
        self.give_back((info, data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]))
        return kept

    def bytes_of(self, key: str) -> bytes | None:
        found = self._objects.get(key)
        return None if found is None else found[1]


@dataclass(eq=False)
class StoreServer:
    loop: InstanceLoop
    network: Network
    chance: random.Random
    objects: Objects = field(default_factory=Objects)
    rates: Rates = field(default_factory=Rates)
    refusal: type[StoreFull | StoreRefused] | None = None
    """What each PUT is answered, while the store takes none."""
    put_s: tuple[float, float] | None = None
    """How long each PUT takes, while the store is thin."""
    met: dict[str, int] = field(default_factory=dict)
    """How often each fault was met."""

    def of(self, node: str) -> SimulatedStore:
        """As a process reaches it."""
        return SimulatedStore(self, node)

    def put(self, node: str, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        async def taken() -> T:
            if self.refusal is not None:
                raise self.refusal(key, "no PUT is taken")
            return await work()

        takes_s = 0.0 if self.put_s is None else self.chance.uniform(*self.put_s)
        return self.request(node, key, taken, takes_s)

    def request(
        self, node: str, key: str, work: Callable[[], Coroutine[Any, Any, T]], takes_s: float = 0.0
    ) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self.loop.create_future()
        drawn, fault, rates = self.chance.random(), "", self.rates
        for name in ("refused", "unanswered", "late", "doubled", "slow"):
            drawn -= getattr(rates, name)
            if drawn < 0:
                fault = name
                self.met[name] = self.met.get(name, 0) + 1
                break
        wait_s = self.network.delay_s(node, NODE) + takes_s
        with self.loop.running(None):
            if fault == "late":
                self.loop.call_later(wait_s + self.chance.uniform(*LATE_S), _execute, work)
                self._answer_later(node, answer, StoreUnavailable(key, "no answer yet"))
            elif fault == "slow":
                self.loop.call_later(
                    wait_s + self.chance.uniform(*SLOW_S), self._serve, node, key, work, fault, answer
                )
            else:
                self.loop.call_later(wait_s, self._serve, node, key, work, fault, answer)
        return answer

    def _serve(
        self,
        node: str,
        key: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        fault: str,
        answer: asyncio.Future[T],
    ) -> None:
        if not self.network.reaches(node, NODE):
            self.loop.call_later(
                TIMEOUT_S, self._answer_later, node, answer, StoreUnavailable(key, "timeout")
            )
            return
        if fault == "refused":
            self._answer_later(node, answer, StoreUnavailable(key, "503 SlowDown"))
            return
        result = _execute(work)
        if fault == "doubled":
            self.loop.call_later(self.chance.uniform(*LATE_S), _execute, work)
        if fault == "unanswered":
            result = StoreUnavailable(key, "connection reset")
        self._answer_later(node, answer, result)

    def _answer_later(self, node: str, answer: asyncio.Future[T], result: T | StoreError) -> None:
        def arrive() -> None:
            if answer.done():
                return
            if isinstance(result, StoreError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.loop.call_later(self.network.delay_s(NODE, node), self.network.run_as, node, arrive)


def _execute(work: Callable[[], Coroutine[Any, Any, T]]) -> T | StoreError:
    """A store in memory does its work in one step."""
    running = work()
    try:
        running.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    except StoreError as error:
        return error
    raise AssertionError("a store in memory waits for nothing")


class SimulatedStore:
    """The port of one process."""

    def __init__(self, server: StoreServer, node: str) -> None:
        self._server, self._node = server, node
        self.bills_requests = True
        self.puts_at_once_max: int | None = 48
        self.conditional_delete = True

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        data, objects = b"".join(body), self._server.objects
        return await self._server.put(
            self._node,
            key,
            lambda: objects.put(key, [data], condition=condition, metadata=dict(metadata)),
        )

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        objects = self._server.objects
        return await self._ask(key, lambda: objects.get(key, if_match=if_match, start=start, end=end))

    async def head(self, key: str) -> ObjectInfo | None:
        return await self._ask(key, lambda: self._server.objects.head(key))

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        return await self._ask(key, lambda: self._server.objects.delete(key, if_match=if_match))

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        return await delete_singly(lambda key, etag: self.delete(key, if_match=etag), doomed)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        objects = self._server.objects

        async def all_of_them() -> list[ObjectInfo]:
            return [info async for info in objects.list(prefix, start_after=start_after)]

        for info in await self._ask(prefix, all_of_them):
            yield info

    async def probe(self) -> None:
        await self.head("probe")

    async def close(self) -> None:
        """It holds no connection."""

    async def _ask(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await self._server.request(self._node, key, work)
