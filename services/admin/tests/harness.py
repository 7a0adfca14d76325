"""An admin service without sockets: real etcd, objects in memory, handlers called with request bodies."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kafscale.admin.context import AdminContext
from kafscale.admin.deletion import Deletions
from kafscale.admin.settings import AdminSettings
from kafscale.admin.topics import TopicStore
from kafscale.runtime.clock import ManualClock
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.heads import decode_owner
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership import Instance, InstanceState, Listener, LiveView
from kafscale.storage.membership_records import encode_live
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import TopicsView
from kafscale.storage.views import PrefixView


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
        self.context = AdminContext(
            settings=AdminSettings(num_partitions=3),
            clock=self.clock,
            keys=keys,
            cluster_id="0123456789abcdefghijkl",
            topics=self.topics,
            store=self.store,
            front_doors=self.front_doors,
            owners=self.owners,
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
        return await self.ask_bytes(api, schema, body, version)

    async def ask_bytes(self, api: ModuleType, schema: ModuleType, body: bytes, version: int) -> Any:
        """The same for a request that no codec of ours would write."""
        answer = b"".join(await api.handler(self.context)(FakeInbound(body, schema.API_KEY, version)))
        return schema.decode_response(answer, version)


class FakeInbound:
    def __init__(self, body: bytes, api_key: int, version: int) -> None:
        self.body = memoryview(body)
        self.meta = RequestMeta(
            connection_id=1,
            request_id=1,
            lane_epoch=0,
            age_budget_ms=30_000,
            api_key=api_key,
            api_version=version,
            revision=0,
            listener="PLAINTEXT",
            principal=None,
            peer="127.0.0.1:1",
            client_id="test",
            traceparent=None,
        )
