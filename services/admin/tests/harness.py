"""An admin service without sockets: real etcd, objects in memory, handlers called with request bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from kafscale.access.authorizer import Authorizer
from kafscale.admin import plan
from kafscale.admin.context import assembled
from kafscale.admin.deletion import Deletions
from kafscale.admin.plan import NewTopic
from kafscale.admin.settings import AdminSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.etcd_space import EtcdSpace
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.storage.access_view import AccessView
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import history_prefix
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Instance, InstanceState, Listener, LiveView
from kafscale.storage.membership.records import encode_live
from kafscale.storage.objects import MemoryStore
from kafscale.storage.owner_views import OwnersView
from kafscale.storage.topics import Topic, TopicsView
from kafscale.testkit.clock import ManualClock
from kafscale.testkit.inbound import inbound
from kafscale.wire.buffers import Buffer


class Admin:
    """What a test holds: the context, the stores behind it, and a way to ask."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.etcd = etcd
        self.keys = keys
        self.objects = MemoryStore()
        self.clock = ManualClock()
        self.topics = TopicsView(etcd, keys)
        self.front_doors = LiveView(etcd, keys, "frontdoor")
        self.owners = OwnersView(etcd, keys)
        self.access = AccessView(etcd, keys)
        self.space = EtcdSpace(etcd, 2 << 30)
        self.metrics = Metrics("admin")
        self.history = History(etcd, keys, self.objects)
        self.context = assembled(
            AdminSettings(num_partitions=3, **(settings or {})),
            etcd,
            keys,
            self.clock,
            cluster_id="0123456789abcdefghijkl",
            topics=self.topics,
            front_doors=self.front_doors,
            owners=self.owners,
            access=self.access,
            space=self.space,
            history=self.history,
            authorization=Authorization(None, self.metrics),
        )
        self.store = self.context.store
        self.deletions = Deletions(
            etcd, keys, self.objects, self.store, self.topics, self.metrics, self.clock, self.history
        )
        self.replied_revision = 0  # of the last answer

    async def object_names(self) -> list[str]:
        """Without the witnesses of etcd's history."""
        prefix = history_prefix(self.keys)
        return [info.key async for info in self.objects.list("") if not info.key.startswith(prefix)]

    async def register(self, node_id: int, *listeners: Listener, rack: str = "") -> Instance:
        """A front door that says it is alive."""
        instance = Instance(
            role="frontdoor",
            node_id=node_id,
            boot_id="boot",
            state=InstanceState.READY,
            listeners=listeners or (Listener(name="PLAINTEXT", host="127.0.0.1", port=9000 + node_id),),
            rack=rack,
        )
        await self.etcd.put(self.keys.live("frontdoor", node_id, "boot"), encode_live(instance))
        await self.front_doors.refresh()
        return instance

    def authorize(self, authorizer: Authorizer) -> Authorization:
        """From now on it decides."""
        authorization = Authorization(authorizer, Metrics("admin"))
        self.context = replace(self.context, authorization=authorization)
        return authorization

    async def ask(
        self, api: ModuleType, schema: ModuleType, request: Any, version: int, principal: str | None = None
    ) -> Any:
        """The decoded answer of one handler to one request."""
        body = b"".join(schema.encode_request(request, version))
        sink = Replied()
        handle = api.handler(self.context)
        arrived = inbound(body, schema.API_KEY, version, sink=sink, principal=principal)
        answer = b"".join(await handle(arrived))
        self.replied_revision = sink.revision
        return schema.decode_response(answer, version)


@asynccontextmanager
async def running(admin: Admin) -> AsyncIterator[Admin]:
    """With its views watched, and loaded."""
    views = (admin.topics, admin.front_doors, admin.owners, admin.access)
    tasks = [asyncio.create_task(view.run()) for view in views]
    try:
        await admin.topics.ready()
        await admin.front_doors.loaded()
        await admin.owners.ready()
        await admin.access.loaded()
        yield admin
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Replied:
    """Where a handler that replies by itself tells a revision; the body is what it returns as well."""

    def __init__(self) -> None:
        self.revision = 0

    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        self.revision = revision


async def created(admin: Admin, name: str, partitions: int = 3) -> Topic:
    topic = await admin.store.create(NewTopic(name=name, partitions=partitions), now_ms=1)
    assert isinstance(topic, Topic), topic
    return topic


async def condemned(admin: Admin, name: str) -> None:
    await created(admin, name)
    assert isinstance(await admin.store.change(name, plan.mark_deleting), Topic)
