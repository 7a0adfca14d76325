"""A group's time is nobody's request: what a timer does bears no request's ids."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kafscale.coordinator.groups.actor import Actor, EtcdState
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.frame import RequestMeta


class DueOnce:
    """A group machine with one deadline, which has passed."""

    def __init__(self) -> None:
        self.fired = asyncio.Event()
        self.seen: list[RequestMeta | None] = []

    def next_deadline(self, group: str) -> int | None:
        return None if self.seen else 0

    def tick(self) -> str:
        self.seen.append(CURRENT_REQUEST.get())
        return "tick"

    def step(self, group: str, _event: str, _now_ms: int) -> tuple[str, tuple[()]]:
        self.fired.set()
        return group, ()

    def must_save(self, _before: str, _after: str) -> bool:
        return False

    def exists(self, _group: str) -> bool:
        return True


async def test_what_a_group_does_by_time_bears_the_ids_of_no_request() -> None:
    group_type = DueOnce()
    tools = SimpleNamespace(
        keyspace=SimpleNamespace(group=lambda _slot, _name: b"g"), clock=SimpleNamespace(now_ms=lambda: 0)
    )
    token = CURRENT_REQUEST.set(RequestMeta(connection_id=1, api_key=11, api_version=9))
    actor: Actor[Any, Any, Any] = Actor(
        "g",
        cast(Any, SimpleNamespace(slot_id=0)),
        cast(Any, group_type),
        "group",
        cast(Any, tools),
        in_etcd=EtcdState(),
    )
    CURRENT_REQUEST.reset(token)
    async with asyncio.timeout(30):
        await group_type.fired.wait()
    assert group_type.seen == [None]
    assert actor.idle
