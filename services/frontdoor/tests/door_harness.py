"""A front door with scripted services behind it and clients without sockets in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from struct import pack, unpack_from
from typing import Literal

from kafscale.frontdoor.assembly import ROLES, FrontDoor, Views, assemble
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.lanes import LaneKey
from kafscale.frontdoor.revisions import AckedRevision
from kafscale.frontdoor.routes import Backend
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.client import BackendLost
from kafscale.runtime.stream.frame import Reply, ReplyStatus, RequestMeta
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.keys import TopicId
from kafscale.storage.membership import Instance, InstanceState, Listener
from kafscale.storage.topics import Topic, TopicState
from kafscale.wire.buffers import Buffer
from kafscale.wire.headers import decode_response_header, encode_request_header
from kafscale.wire.schema import fetch, produce

SETTLE_TURNS = 8


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def instance(role: Backend, node_id: int, boot: str = "a", *, ready: bool = True) -> Instance:
    return Instance(
        role=role.value,
        node_id=node_id,
        boot_id=boot,
        address=f"{role.value}-{node_id}-{boot}",
        state=InstanceState.READY if ready else InstanceState.DRAINING,
    )


class FakeLive:
    def __init__(self) -> None:
        self._instances: tuple[Instance, ...] = ()
        self._listeners: list[Callable[[], None]] = []

    def instances(self) -> tuple[Instance, ...]:
        return self._instances

    def subscribe(self, listener: Callable[..., None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def set(self, *instances: Instance) -> None:
        self._instances = instances
        for listener in tuple(self._listeners):
            listener()


class FakeOwners:
    def __init__(self) -> None:
        self.records: dict[LaneKey, OwnerRecord] = {}
        self._listeners: list[Callable[[LaneKey], None]] = []

    def get(self, key: LaneKey) -> OwnerRecord | None:
        return self.records.get(key)

    def subscribe(self, listener: Callable[[LaneKey], None]) -> None:
        self._listeners.append(listener)

    def set(self, key: LaneKey, owner: str, handoff_to: str = "") -> None:
        self.records[key] = OwnerRecord(epoch=1, owner=owner, handoff_to=handoff_to)
        for listener in self._listeners:
            listener(key)


class FakeTopics:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.hidden: dict[str, Topic] = {}
        self.refreshes = 0
        self.fails: Exception | None = None

    def add(self, name: str, number: int, partitions: int, *, hidden: bool = False) -> Topic:
        topic = Topic(name=name, topic_id=topic_id(number), partitions=partitions)
        (self.hidden if hidden else self.topics)[name] = topic
        return topic

    def by_name(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def by_id(self, wanted: TopicId) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == bytes(wanted)), None)

    async def refresh(self) -> None:
        self.refreshes += 1
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        self.topics.update(self.hidden)
        self.hidden.clear()


@dataclass(eq=False)
class Sent:
    """A request as a service sees it."""

    meta: RequestMeta
    body: bytes
    lane: int
    future: asyncio.Future[Reply]
    buffers: Sequence[Buffer] = ()
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True
        self.future.cancel()

    def reply(self, *buffers: Buffer, status: ReplyStatus = ReplyStatus.FINAL, revision: int = 0) -> None:
        self.future.set_result(Reply(status, revision, memoryview(b"".join(map(bytes, buffers)))))

    def lose(self, *, sent: bool) -> None:
        self.future.set_exception(BackendLost(target="fake", sent=sent, reason="test"))

    # ---- Produce

    @property
    def produced(self) -> list[tuple[str, int, bytes]]:
        message = produce.decode_request(self.body, self.meta.api_version)
        return [
            (topic.name, entry.index, bytes(entry.records or b""))  # type: ignore[arg-type]
            for topic in message.topic_data
            for entry in topic.partition_data
        ]

    def append(
        self, *codes: int, offset: int = 0, status: ReplyStatus = ReplyStatus.FINAL, revision: int = 0
    ) -> None:
        """Answers a Produce: a code for each partition in order; no codes: all well."""
        message = produce.decode_request(self.body, self.meta.api_version)
        left = list(codes)
        topics = []
        for topic in message.topic_data:
            parts = []
            for entry in topic.partition_data:
                code = left.pop(0) if left else 0
                parts.append(
                    produce.ProduceResponsePartition(
                        index=entry.index, error_code=code, base_offset=-1 if code else offset
                    )
                )
            topics.append(
                produce.ProduceResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=parts
                )
            )
        response = produce.ProduceResponse(responses=topics)
        self.reply(
            *produce.encode_response(response, self.meta.api_version), status=status, revision=revision
        )

    def refuse(self) -> None:
        count = len(self.produced)
        self.append(*[6] * count, status=ReplyStatus.NOT_OWNER)

    # ---- Fetch

    @property
    def fetched(self) -> fetch.FetchRequest:
        return fetch.decode_request(self.body, self.meta.api_version)

    def give(self, records: bytes = b"", *, code: int = 0, session_id: int = 0) -> None:
        """Answers a Fetch with these records in each partition."""
        topics = [
            fetch.FetchResponseTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    fetch.FetchResponsePartition(
                        partition_index=entry.partition, error_code=code, high_watermark=9, records=records
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in self.fetched.topics
        ]
        response = fetch.FetchResponse(responses=topics, session_id=session_id)
        self.reply(*fetch.encode_response(response, self.meta.api_version))


@dataclass(eq=False)
class FakeStream:
    address: str
    kind: str
    sent: list[Sent] = field(default_factory=list)
    fails: Callable[[int], bool] = lambda _size: False
    closed: bool = False
    room: asyncio.Event = field(default_factory=asyncio.Event)
    full: bool = False

    @property
    def writable(self) -> bool:
        return not self.full

    async def drain(self) -> None:
        await self.room.wait()

    def send(self, meta: RequestMeta, body: Sequence[Buffer], *, lane: int = 0) -> Sent:
        joined = b"".join(map(bytes, body))
        one = Sent(meta, joined, lane, asyncio.get_running_loop().create_future(), body)
        if self.fails(len(joined)):
            one.lose(sent=False)
        else:
            self.sent.append(one)
        return one

    async def close(self) -> None:
        self.closed = True
        self.room.set()
        for one in self.sent:
            if not one.future.done():
                one.lose(sent=True)


class FakeTransport(asyncio.Transport):
    """The client's end: what was written, whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.out = bytearray()
        self.writes = 0
        self.reading = True
        self.closing = False
        self.protocol: ClientConnection | None = None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        assert not self.closing, "nothing is written after close"
        self.writes += 1
        self.out += b"".join(map(bytes, list_of_data))

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


@dataclass(frozen=True)
class Answer:
    correlation_id: int
    body: bytes


class FakeClient:
    """Writes requests into the front door and reads its answers, without a socket."""

    def __init__(self, door: FrontDoor) -> None:
        self.connection = ClientConnection(door.gateway, "PLAINTEXT")
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


class Cluster:
    """The front door under test and everything around it."""

    def __init__(self, tasks: asyncio.TaskGroup, **settings: int) -> None:
        self.live = {role: FakeLive() for role in ROLES}
        self.front_doors = FakeLive()
        self.owners = FakeOwners()
        self.topics = FakeTopics()
        self.streams: dict[tuple[str, str], FakeStream] = {}
        self.settings = FrontdoorSettings(
            **{"frontdoor_hold_ms_max": 300, **settings},  # type: ignore[arg-type]
        )
        self.clock = SystemClock()
        self.metrics = Metrics("frontdoor")
        self.door = assemble(
            self.settings,
            Views(topics=self.topics, owners=self.owners, live=self.live, front_doors=self.front_doors),  # type: ignore[arg-type]
            clock=self.clock,
            tasks=tasks,
            metrics=self.metrics,
            tracer=None,
            budget=MemoryBudget(self.settings.memory_bytes),
            acked=AckedRevision(),
            connect=self._connect,
        )
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
    async def running(cls, **settings: int) -> AsyncIterator[Cluster]:
        async with asyncio.TaskGroup() as tasks:
            cluster = cls(tasks, **settings)
            sweep = tasks.create_task(cluster.door.gateway.sweep())
            yield cluster
            sweep.cancel()
            await cluster.door.close()

    def _connect(self, address: str, kind: Literal["bulk", "control"]) -> FakeStream:
        return self.streams.setdefault((address, kind), FakeStream(address, kind))

    def serve(self, role: Backend, *node_ids: int) -> None:
        self.live[role].set(*(instance(role, node_id) for node_id in node_ids))

    def stream(self, role: Backend, node_id: int, kind: str = "bulk", boot: str = "a") -> FakeStream:
        return self._connect(f"{role.value}-{node_id}-{boot}", kind)  # type: ignore[arg-type]

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

    def client(self) -> FakeClient:
        return FakeClient(self.door)


async def settled() -> None:
    """Everything that is ready to run has run."""
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
