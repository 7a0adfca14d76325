"""Coordinators without sockets: the real wiring on a real etcd, handlers called with request bodies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from kafscale.access.authorizer import Authorizer
from kafscale.coordinator.groups.registry import AnyActor
from kafscale.coordinator.server import Coordination
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import Runtime
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.membership.members import Instance, InstanceState, LiveView, Registration
from kafscale.storage.membership.records import encode_live
from kafscale.storage.objects import ObjectStore
from kafscale.storage.slots import ROLE
from kafscale.storage.topics import Topic, TopicsView, encode_topic
from kafscale.testkit.inbound import inbound

SETTINGS = CoordinatorSettings(
    group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=0, drain_timeout_ms=5_000
)
OFF = SETTINGS.model_copy(update={"transactions": False})
WAIT_S = 20.0


class Clock(SystemClock):
    """The real one, and as much later as a test says."""

    def __init__(self) -> None:
        self.later_ms = 0
        self.lived_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.lived_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.later_ms


class EtcdDoor:
    """The way to etcd, with gates before and after transactions and a fate for each."""

    def __init__(self, etcd: EtcdClient) -> None:
        self._etcd = etcd
        self.gate = asyncio.Event()
        self.gate.set()
        self.way_back = asyncio.Event()
        self.way_back.set()
        self.sent: list[Any] = []
        self.before: list[Exception | None] = []
        self.after: list[Exception] = []
        self.room = -1
        """So many transactions go through, and then the gate is shut; -1: all."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._etcd, name)

    async def txn(self, txn: Any, **how: Any) -> Any:
        if self.room == 0:
            self.gate.clear()
        self.room -= 1
        await self.gate.wait()
        self.sent.append(txn)
        if self.before and (error := self.before.pop(0)) is not None:
            raise error
        answer = await self._etcd.txn(txn, **how)
        await self.way_back.wait()
        if self.after:
            raise self.after.pop(0)
        return answer


class Coordinator:
    """One instance: `start` it, ask it, and end it in one way or another."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        node_id: int = 1,
        settings: CoordinatorSettings = SETTINGS,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.authorizer = authorizer
        self.etcd = etcd
        self.door = EtcdDoor(etcd)
        self.keys = keys
        self.clock = Clock()
        self.fresh = True
        self.instance = Instance(
            role=ROLE, node_id=node_id, boot_id=f"boot{node_id}", state=InstanceState.READY
        )
        self.topics = TopicsView(etcd, keys)
        self.metrics = Metrics("coordinator")
        self._settings = settings
        self._stop = asyncio.Event()
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Coordinator:
        await self._announce()
        self._task = asyncio.create_task(self._run())
        await asyncio.wait((self._task, self._started), return_when=asyncio.FIRST_COMPLETED)
        self._started.result()
        return self

    async def _announce(self) -> None:
        live = self.keys.live(ROLE, self.instance.node_id, self.instance.boot_id)
        await self.etcd.put(live, encode_live(self.instance))

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            views = tasks.create_task(self.topics.run())
            runtime = Runtime(
                role=ROLE,
                settings=self._settings,
                etcd=cast("EtcdClient", self.door),
                keyspace=self.keys,
                store=cast("ObjectStore", None),
                registration=cast(
                    "Registration",
                    SimpleNamespace(instance=self.instance, is_fresh=lambda _now_s: self.fresh),
                ),
                metrics=self.metrics,
                task_group=tasks,
                clock=self.clock,
                watch=LoopWatch(self.clock),
            )
            runtime._topics = self.topics
            runtime._authorization = Authorization(self.authorizer, self.metrics)
            front_doors = LiveView(self.etcd, self.keys, "frontdoor")
            self.parts = Coordination(runtime, front_doors)
            self.context = self.parts.context
            await self.parts.start()
            self._started.set_result(None)
            await self._stop.wait()
            views.cancel()
            raise asyncio.CancelledError

    async def drain(self) -> None:
        """The others are told first: who still sees it as ready would give its slots back."""
        self.instance = replace(self.instance, state=InstanceState.DRAINING)
        await self._announce()
        await self.parts.drain()

    async def leave(self) -> None:
        """SIGTERM."""
        await self.drain()
        await self.die()
        await self.lease_ends()

    async def die(self) -> None:
        """SIGKILL; its lease stands."""
        self._stop.set()
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def ended(self) -> BaseException | None:
        """What it died of by itself."""
        assert self._task is not None
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait((self._task,))
        return self._task.exception()

    async def lease_ends(self) -> None:
        await self.etcd.delete(self.keys.live(ROLE, self.instance.node_id, self.instance.boot_id))

    @property
    def slots(self) -> set[int]:
        held = self.parts.slots.held
        return {slot for slot in range(64) if (one := held(cast("Any", slot))) is not None and one.loaded}

    def actor(self, name: str) -> AnyActor:
        """Of a group that is there."""
        found = self.parts.groups.find(name)
        assert found is not None
        return found

    def metric(self, name: str, *labels: str) -> float:
        rows = self.metrics.sources[f"kafscale_coordinator_{name}"].rows()
        (value,) = (value for found, value in rows if tuple(found) == labels)
        assert isinstance(value, int | float)
        return value

    async def has(self, count: int) -> None:
        await until(lambda: len(self.slots) == count)

    async def ask(
        self,
        api: ModuleType,
        schema: ModuleType,
        request: Any,
        version: int,
        *,
        aged: bool = False,
        principal: str | None = None,
    ) -> Any:
        """The decoded answer of one handler to one request."""
        body = b"".join(schema.encode_request(request, version))
        arrived = inbound(body, schema.API_KEY, version, aged=aged, principal=principal)
        if not aged:
            arrived.arrived_ms = self.clock.now_ms()
        answer = b"".join(await api.handler(self.context)(arrived))
        return schema.decode_response(answer, version)


async def make_topic(etcd: EtcdClient, keys: Keyspace, name: str = "t", partitions: int = 500) -> TopicId:
    topic = Topic(name=name, topic_id=TopicId(name.encode().ljust(16, b".")), partitions=partitions)
    await etcd.put(keys.topic(name), encode_topic(topic))
    return topic.topic_id


async def turns(count: int = 20) -> None:
    """Of the loop: who can go on without etcd has, and who was asked stands in line."""
    for _ in range(count):
        await asyncio.sleep(0)


async def known_topic(one: Coordinator, partitions: int = 500) -> None:
    """Known to its groups as well, which hear of topics a turn of the loop later and then move their epochs."""
    await make_topic(one.etcd, one.keys, partitions=partitions)
    await one.topics.refresh()
    await turns()


async def until(happened: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not happened():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(
    etcd: EtcdClient,
    keys: Keyspace,
    settings: CoordinatorSettings = SETTINGS,
    authorizer: Authorizer | None = None,
    node_id: int = 1,
) -> AsyncIterator[Coordinator]:
    """One instance that has all slots."""
    one = await Coordinator(etcd, keys, node_id, settings, authorizer).start()
    try:
        await one.has(64)
        yield one
    finally:
        await one.die()
