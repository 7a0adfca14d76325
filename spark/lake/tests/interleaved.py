"""Two or more actors whose calls to etcd and the store happen in the order that the test says: one call is one step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from kafscale.lake.catalog import Lake
from kafscale.storage.objects import Doomed, ObjectInfo, Outcome

from .shop import Shop

STEPS_MAX_S = 30.0


class Gate:
    """Lets through whom `order` names next; who has ended is passed over, and past the end of it everybody goes."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = list(order)
        self._changed = asyncio.Condition()
        self.steps: list[str] = []

    async def step(self, actor: str, call: Callable[[], Any]) -> Any:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._order or self._order[0] == actor)
            if self._order:
                self._order.pop(0)
            self.steps.append(actor)
            try:
                return await call()
            finally:
                self._changed.notify_all()

    async def ended(self, actor: str) -> None:
        async with self._changed:
            self._order = [each for each in self._order if each != actor]
            self._changed.notify_all()


class Stepped:
    """etcd or a store, as one actor sees it."""

    def __init__(self, inner: object, gate: Gate, actor: str) -> None:
        self._inner = inner
        self._gate = gate
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._inner, name)
        if not callable(there):
            return there

        async def call(*args: Any, **how: Any) -> Any:
            return await self._gate.step(self._actor, lambda: there(*args, **how))

        return call

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        return [await self.delete(each.key, if_match=each.etag) for each in doomed]

    async def list(self, prefix: str, **how: Any) -> AsyncIterator[ObjectInfo]:
        async def listed() -> list[ObjectInfo]:
            return [info async for info in self._inner.list(prefix, **how)]  # type: ignore[attr-defined]

        for info in await self._gate.step(self._actor, listed):
            yield info


Actor = Callable[[Lake], Coroutine[Any, Any, object]]


async def play(shop: Shop, order: Sequence[str], actors: Mapping[str, Actor]) -> list[str]:
    """Who took which step. Every actor ends."""
    gate = Gate(order)

    async def one(name: str, act: Actor) -> None:
        etcd, store = Stepped(shop.etcd, gate, name), Stepped(shop.store, gate, name)
        try:
            await act(Lake(etcd, shop.keys, store))  # type: ignore[arg-type]
        finally:
            await gate.ended(name)

    async with asyncio.timeout(STEPS_MAX_S), asyncio.TaskGroup() as group:
        for name, act in actors.items():
            group.create_task(one(name, act))
    return gate.steps


def orders(first: str, steps: int, second: str, inserted: int) -> Iterator[list[str]]:
    """Every way in which `inserted` steps of the second fall between and around those of the first."""
    for places in itertools.combinations_with_replacement(range(steps + 1), inserted):
        order: list[str] = []
        for at in range(steps + 1):
            order += [second] * places.count(at)
            order += [first] * (at < steps)
        yield order
