"""Fakes behind a front door under test: views that tests set, streams that tests answer, transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.lanes import LaneKey
from kafscale.runtime.stream.frame import Reply, ReplyPart, ReplyStatus, RequestMeta
from kafscale.runtime.stream.outbox import Waiting
from kafscale.storage.coordination import OwnerRecord
from kafscale.storage.keys import SlotId, TopicId
from kafscale.storage.membership.members import Instance, InstanceState
from kafscale.storage.slots import Slot, slot_of
from kafscale.storage.topics import Topic, TopicState
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema import fetch, produce


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def instance(
    role: Backend, node_id: int, boot: str = "a", *, ready: bool = True, address: str = ""
) -> Instance:
    return Instance(
        role=role.value,
        node_id=node_id,
        boot_id=boot,
        address=address or f"{role.value}-{node_id}-{boot}",
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

    def of(self, key: LaneKey) -> OwnerRecord | None:
        return self.records.get(key)

    def follow(self, listener: Callable[[LaneKey], None]) -> None:
        self._listeners.append(listener)

    def set(self, key: LaneKey, owner: str, handoff_to: str = "") -> None:
        self.records[key] = OwnerRecord(epoch=1, owner=owner, handoff_to=handoff_to)
        for listener in self._listeners:
            listener(key)


class FakeSlots:
    def __init__(self) -> None:
        self.records: dict[SlotId, Slot] = {}

    def of(self, slot_id: SlotId) -> Slot | None:
        return self.records.get(slot_id)

    def claimed(self) -> list[Slot]:
        return list(self.records.values())

    def set(self, group: str, owner: str, handoff_to: str = "") -> None:
        """Who has the slot of this group."""
        self.records[slot_of(group)] = Slot(epoch=1, owner=owner, handoff_to=handoff_to)


class FakeTopics:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.hidden: dict[str, Topic] = {}
        self.damaged: set[str] = set()
        self.reads = 0
        self.fails = False

    def is_damaged(self, name: str) -> bool:
        return name in self.damaged

    def add(self, name: str, number: int, partitions: int, *, hidden: bool = False) -> Topic:
        topic = Topic(name=name, topic_id=topic_id(number), partitions=partitions)
        (self.hidden if hidden else self.topics)[name] = topic
        return topic

    def all(self) -> tuple[Topic, ...]:
        return tuple(self.topics.values())

    def by_name(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def by_id(self, wanted: TopicId) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == bytes(wanted)), None)

    def find(self, ref: str, partition: int = 0) -> Topic | None:
        topic = self.by_name(ref)
        active = topic is not None and topic.state is TopicState.ACTIVE
        return topic if active and topic and 0 <= partition < topic.partitions else None

    def confirm(self, then: Callable[[bool], None], *, recent_s: float = 0.0) -> None:
        """Any read that did not fail is recent."""
        if self.reads and recent_s and not self.fails:
            then(True)
            return
        self.reads += 1
        asyncio.get_running_loop().call_soon(self._read, then)

    def _read(self, then: Callable[[bool], None]) -> None:
        if not self.fails:
            self.topics.update(self.hidden)
            self.hidden.clear()
        then(not self.fails)


@dataclass(eq=False)
class Sent:
    """A request as a service sees it."""

    meta: RequestMeta
    body: bytes
    lane: int
    future: asyncio.Future[Reply]
    buffers: Sequence[Buffer] = ()
    cancelled: bool = False
    admits: Callable[[int], bool] | None = None
    parts: Callable[[ReplyPart], None] | None = None
    waiting: Waiting | None = None

    def cancel(self) -> None:
        self.cancelled = True
        self.admits = self.parts = None
        self.future.cancel()

    def arrive(self, size: int) -> bool:
        """A part of a large answer; refused, the answer is thrown away."""
        kept = self.admits is None or self.admits(size)
        if not kept and not self.future.done():
            self.reply(status=ReplyStatus.FAILED)
        return kept

    def part(self, body: bytes, start: int, end: int) -> None:
        """The bytes [start, end) of an answer in several parts. Nothing, once the request was cancelled."""
        left_bytes, take = len(body) - end, self.parts
        if take is None:
            return
        if not left_bytes:
            self.reply()
        reply = Reply(ReplyStatus.FINAL, 0, memoryview(body)[start:end])
        take(ReplyPart(self.meta.request_id, reply, len(body), left_bytes))

    def reply(
        self,
        *buffers: Buffer,
        status: ReplyStatus = ReplyStatus.FINAL,
        revision: int = 0,
    ) -> None:
        self.admits = self.parts = None
        body = memoryview(b"".join(map(bytes, buffers)))
        self.future.set_result(Reply(status, revision, body))

    def lose(self, *, sent: bool) -> None:
        self.future.set_result(Reply(ReplyStatus.LOST if sent else ReplyStatus.REFUSED, reason="test"))

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

    def give(self, records: bytes = b"", *, code: int = 0) -> None:
        """Answers a Fetch with these records in each partition."""
        self.reply(self.body_of(records, code=code))

    def body_of(self, records: bytes, *, code: int = 0) -> bytes:
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
        response = fetch.FetchResponse(responses=topics)
        return b"".join(map(bytes, fetch.encode_response(response, self.meta.api_version)))


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

    def send(
        self, meta: RequestMeta, body: Sequence[Buffer], *, lane: int = 0, patient: bool = False
    ) -> Sent:
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
        self.buffered = 0
        """What of `out` the client has not taken: a test's to say."""
        self.takes = True
        self.address = "127.0.0.1"
        self.protocol: ClientConnection | None = None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.address, 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        assert not self.closing, "nothing is written after close"
        self.writes += 1
        data = b"".join(map(bytes, list_of_data))
        self.out += data
        self.buffered += 0 if self.takes else len(data)

    def get_write_buffer_size(self) -> int:
        return self.buffered

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
