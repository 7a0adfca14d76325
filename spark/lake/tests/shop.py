"""A small cluster whose every state can be taken and put back, and ports that die on request: for tests that kill."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from kafscale.lake.catalog import Lake
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import Doomed, MemoryStore, ObjectInfo, Outcome
from kafscale.storage.topics import Topic, encode_topic
from kafscale.testkit.etcd_model import model
from kafscale.testkit.etcd_model.client import ModelClient
from kafscale.testkit.logbuilder import LogBuilder, create_topic

State = tuple[model.State, dict[str, tuple[ObjectInfo, bytes]]]


class Died(Exception):
    """The process under test is dead: nothing that it tries from here on happens."""


class Death:
    """Comes before the call of this number, or right after it was carried out. 0: never."""

    def __init__(self, at: int = 0, *, after: bool = False) -> None:
        self.at = at
        self.after = after
        self.calls: list[str] = []

    @property
    def came(self) -> bool:
        return 0 < self.at <= len(self.calls)

    async def meet(self, name: str, call: Callable[[], Any]) -> Any:
        if self.came:
            raise Died
        self.calls.append(name)
        if self.came and not self.after:
            raise Died
        answer = await call()
        if self.came:
            raise Died
        return answer


class Mortal:
    """etcd or a store, as a process sees it that is to die."""

    def __init__(self, inner: object, death: Death) -> None:
        self._inner = inner
        self._death = death

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._inner, name)
        if not callable(there):
            return there

        @functools.wraps(there)
        async def call(*args: Any, **how: Any) -> Any:
            return await self._death.meet(name, functools.partial(there, *args, **how))

        return call

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        """A step for each, since a server may have done any of them when its client dies."""
        return [await self.delete(each.key, if_match=each.etag) for each in doomed]

    async def list(self, prefix: str, **how: Any) -> AsyncIterator[ObjectInfo]:
        async def listed() -> list[ObjectInfo]:
            return [info async for info in self._inner.list(prefix, **how)]  # type: ignore[attr-defined]

        for info in await self._death.meet("list", listed):
            yield info


class Store(MemoryStore):
    def names(self) -> set[str]:
        """Without the witnesses of etcd's history."""
        return {key for key in self._objects if "/@kafscale/history/" not in key}

    def take(self) -> dict[str, tuple[ObjectInfo, bytes]]:
        return dict(self._objects)

    def put_back(self, objects: dict[str, tuple[ObjectInfo, bytes]]) -> None:
        self._objects = dict(objects)
        self._keys = sorted(objects)


class Shop:
    """`lake()` is what a process works with; the rest is the test's own."""

    def __init__(self, etcd: EtcdClient | None = None, keys: Keyspace | None = None) -> None:
        """Without an etcd one in memory, whose state can be taken and put back."""
        self.memory = model.EtcdModel()
        self.etcd: EtcdClient = etcd or ModelClient(self.memory)
        self.keys = keys or Keyspace("shop")
        self.store = Store()
        self.logs: dict[str, LogBuilder] = {}

    def lake(self, death: Death | None = None) -> Lake:
        if death is None:
            return Lake(self.etcd, self.keys, self.store)
        return Lake(Mortal(self.etcd, death), self.keys, Mortal(self.store, death))  # type: ignore[arg-type]

    async def topic(self, name: str, **configs: str) -> LogBuilder:
        topic = await create_topic(self.etcd, self.keys, name)
        topic = await self.configure(topic, **configs)
        log = self.logs[name] = LogBuilder(self.etcd, self.keys, self.store, topic)
        return log

    async def configure(self, topic: Topic, **configs: str) -> Topic:
        changed = replace(topic, configs={key.replace("_", "."): value for key, value in configs.items()})
        await self.etcd.put(self.keys.topic(topic.name), encode_topic(changed))
        return changed

    def take(self) -> State:
        return self.memory.snapshot(), self.store.take()

    def put_back(self, state: State) -> None:
        values, objects = state
        self.memory.restore(values)
        self.store.put_back(objects)
