"""A front door with scripted services behind it and clients without sockets in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from struct import pack, unpack_from

from door_fakes import (
    FakeLive,
    FakeOwners,
    FakeSlots,
    FakeStream,
    FakeTopics,
    FakeTransport,
    instance,
    topic_id,
)
from kafscale.access.authorizer import Authorizer
from kafscale.access.quota import QuotaTable
from kafscale.frontdoor.access import AccessMeans, DoorAccess
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.assembly import ROLES, FrontDoor, Means, Views, assemble
from kafscale.frontdoor.authentication.credentials import CredentialSource
from kafscale.frontdoor.authentication.login import ListenerLogins
from kafscale.frontdoor.backends import ServiceStream
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity, plain_listener
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.options import Stream
from kafscale.storage.coordination import rendezvous
from kafscale.storage.membership.members import Instance, InstanceState, Listener
from kafscale.storage.topics import Topic, TopicState
from kafscale.wire.buffers import Buffer
from kafscale.wire.headers import decode_response_header, encode_request_header
from kafscale.wire.schema import fetch, produce

SETTLE_TURNS = 8
NODES = (1, 2)
PLAINTEXT = plain_listener("PLAINTEXT")


@dataclass(frozen=True)
class Answer:
    correlation_id: int
    body: bytes


class FakeClient:
    """Writes requests into the front door and reads its answers, without a socket."""

    def __init__(
        self,
        door: FrontDoor,
        logins: ListenerLogins | None = None,
        security: ListenerSecurity = PLAINTEXT,
    ) -> None:
        self.connection = ClientConnection(door.gateway, security, logins=logins)
        self.transport = FakeTransport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self.versions: dict[int, tuple[int, int]] = {}
        self.numbers = 0

    def feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while len(rest) and not self.transport.closing:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.connection.buffer_updated(count)
            rest = rest[count:]

    def frame(self, key: int, version: int, body: bytes) -> bytes:
        self.numbers += 1
        self.versions[self.numbers] = (key, version)
        whole = encode_request_header(key, version, self.numbers, "test") + body
        return pack(">i", len(whole)) + whole

    def ask(self, key: int, version: int, *body: Buffer) -> int:
        self.feed(self.frame(key, version, b"".join(map(bytes, body))))
        return self.numbers

    def produce(
        self,
        *parts: tuple[str, int, bytes],
        version: int = 9,
        acks: int = -1,
        timeout_ms: int = 5_000,
        number: int = 1,
    ) -> int:
        """`number`: of the topic, for versions with topic ids."""
        topics: dict[str, produce.ProduceRequestTopic] = {}
        for name, index, records in parts:
            topic = topics.setdefault(
                name, produce.ProduceRequestTopic(name=name, topic_id=topic_id(number), partition_data=[])
            )
            topic.partition_data.append(produce.ProduceRequestPartition(index=index, records=records))
        message = produce.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))
        return self.ask(0, version, *produce.encode_request(message, version))

    def fetch(
        self,
        *parts: tuple[str, int],
        version: int = 12,
        max_bytes: int = 1 << 20,
        session: tuple[int, int] = (0, -1),
        max_wait_ms: int = 500,
    ) -> int:
        topics: dict[str, fetch.FetchRequestTopic] = {}
        for name, index in parts:
            topic = topics.setdefault(name, fetch.FetchRequestTopic(topic=name, partitions=[]))
            topic.partitions.append(fetch.FetchRequestPartition(partition=index, partition_max_bytes=1 << 20))
        message = fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=list(topics.values()),
            session_id=session[0],
            session_epoch=session[1],
        )
        return self.ask(1, version, *fetch.encode_request(message, version))

    @property
    def answers(self) -> list[Answer]:
        """Every answer so far, in the order of the wire."""
        found, position = [], 0
        out = bytes(self.transport.out)
        while position < len(out):
            (size,) = unpack_from(">i", out, position)
            data = out[position + 4 : position + 4 + size]
            assert len(data) == size, "a whole answer"
            (correlation_id,) = unpack_from(">i", data)
            key, version = self.versions[correlation_id]
            _, offset = decode_response_header(data, key, version)
            found.append(Answer(correlation_id, data[offset:]))
            position += 4 + size
        return found

    def produced(self, number: int = 0) -> list[tuple[str, int, int, int]]:
        """Topic, partition, code and offset of each partition in the nth answer."""
        answer = self.answers[number]
        response = produce.decode_response(answer.body, self.versions[answer.correlation_id][1])
        return [
            (topic.name, part.index, part.error_code, part.base_offset)
            for topic in response.responses
            for part in topic.partition_responses
        ]

    def fetched(self, number: int = 0) -> list[tuple[str, int, int, bytes]]:
        answer = self.answers[number]
        response = fetch.decode_response(answer.body, self.versions[answer.correlation_id][1])
        return [
            (topic.topic, part.partition_index, part.error_code, bytes(part.records or b""))  # type: ignore[arg-type]
            for topic in response.responses
            for part in topic.partitions
        ]

    @property
    def hung_up(self) -> bool:
        return self.transport.closing

    def leave(self) -> None:
        self.connection.connection_lost(None)


class StoppedWatch(LoopWatch):
    """Says that the process was stopped until now, for as long as a test wants."""

    stopped_ms: int | None = None

    def stalled_since_ms(self, now_ms: int) -> int | None:
        return None if self.stopped_ms is None else now_ms - self.stopped_ms


class Cluster:
    """The front door under test and everything around it."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        node_id: int = 7,
        authorizer: Authorizer | None = None,
        credentials: CredentialSource | None = None,
        access: DoorAccess | None = None,
        **settings: int,
    ) -> None:
        self.live = {role: FakeLive() for role in ROLES}
        self.front_doors = FakeLive()
        self.owners = FakeOwners()
        self.slots = FakeSlots()
        self.topics = FakeTopics()
        self.streams: dict[tuple[str, str], FakeStream] = {}
        self.settings = FrontdoorSettings(
            **{"frontdoor_hold_ms_max": 300, **settings},  # type: ignore[arg-type]
        )
        self.watch = StoppedWatch(SystemClock())
        self.metrics = Metrics("frontdoor")
        self.quotas = QuotaTable()
        self.acked = AckedRevision()
        self.cluster_id = "the-cluster"
        means = Means(
            node_id=node_id,
            clock=SystemClock(),
            tasks=tasks,
            metrics=self.metrics,
            tracer=None,
            budget=MemoryBudget(self.settings.memory_bytes),
            acked=self.acked,
            connect=self._connect,
            authorization=Authorization(authorizer, self.metrics),
            watch=self.watch,
            access=AccessMeans(copy=access, users=credentials, quotas=self.quotas),
        )
        views = Views(
            topics=self.topics,  # type: ignore[arg-type]
            owners=self.owners,
            slots=self.slots,
            live=self.live,
            front_doors=self.front_doors,
            cluster_id=lambda: self.cluster_id,
        )
        self.door = assemble(self.settings, views, means)
        self.front_doors.set(
            Instance(
                role="frontdoor",
                node_id=7,
                boot_id="a",
                state=InstanceState.READY,
                listeners=(Listener(name="PLAINTEXT", host="door", port=9092),),
            )
        )

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        authorizer: Authorizer | None = None,
        credentials: CredentialSource | None = None,
        access: DoorAccess | None = None,
        **settings: int,
    ) -> AsyncIterator[Cluster]:
        async with asyncio.TaskGroup() as tasks:
            cluster = cls(tasks, authorizer=authorizer, credentials=credentials, access=access, **settings)
            sweep = tasks.create_task(cluster.door.gateway.sweep())
            try:
                yield cluster
            finally:  # also after a failed test, which would wait for its connections for ever
                sweep.cancel()
                await cluster.door.close()

    def _connect(self, to: Instance, kind: Stream) -> ServiceStream:
        return self._stream(to.address, kind)

    def _stream(self, address: str, kind: Stream) -> FakeStream:
        return self.streams.setdefault((address, kind), FakeStream(address, kind))

    def serve(self, role: Backend, *node_ids: int) -> None:
        self.live[role].set(*(instance(role, node_id) for node_id in node_ids))

    def stream(self, role: Backend, node_id: int, kind: str = "bulk", boot: str = "a") -> FakeStream:
        return self._stream(f"{role.value}-{node_id}-{boot}", Stream(kind))

    def producer(self, node_id: int) -> FakeStream:
        return self.stream(Backend.PRODUCE, node_id)

    def fetcher(self, node_id: int) -> FakeStream:
        return self.stream(Backend.FETCH, node_id)

    def own(self, topic: Topic, partition: int, node_id: int) -> None:
        self.owners.set((topic.topic_id, partition), f"{node_id}/a")

    def delete(self, name: str) -> None:
        topic = self.topics.topics[name]
        self.topics.topics[name] = Topic(
            name=name, topic_id=topic.topic_id, partitions=topic.partitions, state=TopicState.DELETING
        )

    def client(self, principal: str | None = None) -> FakeClient:
        client = FakeClient(self.door)
        if principal is not None:
            client.connection.caller.principal = principal
        return client


async def settled() -> None:
    """Everything that is ready to run has run."""
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def split_over_two(cluster: Cluster) -> tuple[int, int]:
    """Two partitions whose fetch instances differ: the first for node 1, the second for node 2."""
    topic = cluster.topics.add("t", 1, 16)
    cluster.serve(Backend.FETCH, *NODES)
    by_node = {rendezvous(topic.topic_id, p, NODES): p for p in range(16)}
    return by_node[1], by_node[2]
