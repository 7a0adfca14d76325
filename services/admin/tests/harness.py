"""An admin service without sockets: real etcd, objects in memory, handlers called with request bodies."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from kafscale.admin.context import AdminContext
from kafscale.admin.deletion import Deletions
from kafscale.admin.log_starts import LogStarts
from kafscale.admin.settings import AdminSettings
from kafscale.admin.sizes import Sizes
from kafscale.admin.topics import TopicStore
from kafscale.runtime.clock import ManualClock
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.heads import decode_owner
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership import Instance, InstanceState, Listener, LiveView
from kafscale.storage.membership_records import encode_live
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import TopicsView
from kafscale.storage.views import PrefixView
from kafscale.testkit.inbound import inbound
from kafscale.wire.buffers import Buffer


class Admin:
    """What a test holds: the context, the stores behind it, and a way to ask."""

    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self.etcd = etcd
        self.keys = keys
        self.objects = MemoryStore()
        self.clock = ManualClock()
        self.topics = TopicsView(etcd, keys)
        self.front_doors = LiveView(etcd, keys, "frontdoor")
        self.owners = PrefixView(etcd, keys.owners_prefix(), lambda kv: decode_owner(kv.value))
        self.store = TopicStore(etcd, keys, self.topics, partitions_default=3)
        self.deletions = Deletions(etcd, keys, self.objects, self.store, self.topics, self.clock)
        self.replied_revision = 0  # of the last answer
        self.context = AdminContext(
            settings=AdminSettings(num_partitions=3),
            clock=self.clock,
            keys=keys,
            cluster_id="0123456789abcdefghijkl",
            topics=self.topics,
            store=self.store,
            log_starts=LogStarts(etcd, keys),
            front_doors=self.front_doors,
            owners=self.owners,
            sizes=Sizes(etcd, keys),
        )

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

    async def ask(self, api: ModuleType, schema: ModuleType, request: Any, version: int) -> Any:
        """The decoded answer of one handler to one request."""
        body = b"".join(schema.encode_request(request, version))
        sink = Replied()
        handle = api.handler(self.context)
        answer = b"".join(await handle(inbound(body, schema.API_KEY, version, sink=sink)))
        self.replied_revision = sink.revision
        return schema.decode_response(answer, version)


class Replied:
    """Where a handler that replies by itself tells a revision; the body is what it returns as well."""

    def __init__(self) -> None:
        self.revision = 0

    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        self.revision = revision
