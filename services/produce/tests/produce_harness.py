"""A produce instance in this process, over a real etcd: what a test starts, asks, pauses and kills."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import grpc.aio
from kafscale.log.heads import Head, Meta, Seg, decode_head, decode_meta
from kafscale.log.manifests import decode_manifest
from kafscale.log.places import index_of, place_of
from kafscale.log.segment import verify_segment, walk_batches
from kafscale.produce.server import ProduceService
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.exposition import registry_of
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import Runtime
from kafscale.runtime.stream.frame import Buffer, ReplyStatus, RequestMeta
from kafscale.runtime.stream.server import InboundRequest
from kafscale.storage.coordination import OwnerRecord, decode_owner, rendezvous
from kafscale.storage.etcd.client import EtcdClient, Range
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.membership.members import InstanceState, Pace, Registration
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import Topic, encode_topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch, records_in
from kafscale.wire.schema.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    decode_response,
    encode_request,
)

PATIENCE_S = 20.0
SHORT_TIMEOUTS = {"produce_timeout_min_ms": 0}
"""A test that is about a timeout does not wait for seconds."""
SEGMENTS = {"bundle_direct_bytes": 1}
"""For a test that looks at segments: each request becomes one of its own."""


async def until(condition: Callable[[], object], what: str = "", within_s: float = PATIENCE_S) -> None:
    """Await a condition that another task makes true."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {within_s} s: {what or condition}") from None


def batch(
    *values: bytes, pid: int = -1, epoch: int = -1, seq: int = -1, transactional: bool = False
) -> bytes:
    records = [Record(timestamp=1_700_000_000_000, key=None, value=value) for value in values]
    return build_batch(
        records, producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=transactional
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: ReplyStatus
    revision: int
    response: ProduceResponse | None

    @property
    def parts(self) -> list[ProduceResponsePartition]:
        assert self.response is not None, self
        return [part for topic in self.response.responses for part in topic.partition_responses]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.parts[0].error_code)

    @property
    def base_offset(self) -> int:
        assert self.error is ErrorCode.NONE, self.error.name
        return self.parts[0].base_offset


class Sink:
    """Takes an answer as a stream would."""

    def __init__(self, version: int) -> None:
        self._version = version
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        raw = b"".join(body)
        response = decode_response(raw, self._version) if raw else None
        assert not self.future.done(), "answered twice"
        self.future.set_result(Answer(status=ReplyStatus(status), revision=revision, response=response))

    def lose(self) -> None:
        """The stream broke: nobody knows what became of the request."""
        self.future.set_result(Answer(status=ReplyStatus.FAILED, revision=0, response=None))


@dataclass(eq=False)
class Node:
    """One produce instance."""

    etcd: EtcdClient
    store: ObjectStore
    keyspace: Keyspace
    settings: ProduceSettings
    node_id: int | None = None
    pace: Pace = field(default_factory=Pace)
    registration: Registration = field(init=False)
    service: ProduceService = field(init=False)
    requests: int = 0
    errors: list[int] = field(default_factory=list)  # that were counted

    async def start(self) -> Node:
        self._sinks: set[Sink] = set()
        self._up = asyncio.Event()
        self._life = asyncio.create_task(self._live())
        up = asyncio.create_task(self._up.wait())
        await asyncio.wait({up, self._life}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._life.done():
            await self._life
        return self

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            server = grpc.aio.server()
            port = server.add_insecure_port("127.0.0.1:0")
            stack.push_async_callback(server.stop, None)
            self.registration = await Registration.join(
                self.etcd,
                self.keyspace,
                role="produce",
                address=f"127.0.0.1:{port}",
                node_id=self.node_id,
                pace=self.pace,
            )
            await server.start()
            async with asyncio.TaskGroup() as tasks:
                self.service = ProduceService(self._runtime(tasks))
                stack.push_async_callback(self.service.close)
                tasks.create_task(self.registration.run())
                await self.service.start()
                await self.registration.set_state(InstanceState.READY)
                self._up.set()
                await asyncio.Event().wait()

    def _runtime(self, tasks: asyncio.TaskGroup) -> Runtime[ProduceSettings]:
        self.runtime = Runtime(
            role="produce",
            settings=self.settings,
            etcd=self.etcd,
            keyspace=self.keyspace,
            store=self.store,
            registration=self.registration,
            metrics=Metrics("produce"),
            task_group=tasks,
            clock=SystemClock(),
            watch=LoopWatch(SystemClock()),
        )
        return self.runtime

    @property
    def id(self) -> str:
        return self.registration.instance.id

    @property
    def is_live(self) -> bool:
        return self._up.is_set() and not self._life.done()

    @property
    def number(self) -> int:
        return self.registration.instance.node_id

    @property
    def owned(self) -> set[tuple[TopicId, int]]:
        return {key for key, part in self.service.ownership.partitions.items() if part.writer is not None}

    def metric(self, name: str, **labels: str) -> float:
        return (
            registry_of(self.runtime.metrics.read()).get_sample_value(f"kafscale_produce_{name}", labels)
            or 0.0
        )

    def labels(self, name: str) -> list[dict[str, str]]:
        """Of each value of a metric."""
        return [
            sample.labels
            for metric in registry_of(self.runtime.metrics.read()).collect()
            for sample in metric.samples
            if sample.name == f"kafscale_produce_{name}"
        ]

    def send(
        self,
        topic: Topic,
        partition: int,
        records: bytes | None,
        *,
        connection: int = 1,
        lane_epoch: int = 0,
        **other: Any,
    ) -> asyncio.Future[Answer]:
        return self.send_many(
            [(topic, {partition: records})], connection=connection, lane_epoch=lane_epoch, **other
        )

    def send_many(
        self,
        records: Sequence[tuple[Topic, dict[int, bytes | None]]],
        *,
        connection: int = 1,
        lane_epoch: int = 0,
        version: int = 9,
        acks: int = -1,
        timeout_ms: int = 10_000,
        transactional_id: str | None = None,
    ) -> asyncio.Future[Answer]:
        named = [
            ProduceRequestTopic(
                name=topic.name if version < 13 else "",
                topic_id=topic.topic_id if version >= 13 else bytes(16),
                partition_data=[ProduceRequestPartition(index=i, records=r) for i, r in parts.items()],
            )
            for topic, parts in records
        ]
        message = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=named
        )
        return self.send_raw(
            b"".join(encode_request(message, version)), version, connection=connection, lane_epoch=lane_epoch
        )

    def send_raw(
        self, body: bytes, version: int = 9, *, connection: int = 1, lane_epoch: int = 0
    ) -> asyncio.Future[Answer]:
        sink = Sink(version)
        if self._life.done():
            sink.lose()
            return sink.future
        self._sinks.add(sink)
        sink.future.add_done_callback(lambda _: self._sinks.discard(sink))
        self.requests += 1
        meta = RequestMeta(
            connection_id=connection,
            request_id=self.requests,
            lane_epoch=lane_epoch,
            api_key=0,
            api_version=version,
        )
        now_ms = self.service.ownership.tools.clock.now_ms()
        request = InboundRequest(
            meta,
            memoryview(body),
            arrived_ms=now_ms,
            sink=sink,
            count_error=lambda _, code: self.errors.append(code),
        )
        self.service.handler(request)
        return sink.future

    async def send_all(self, topic: Topic, values: range) -> None:
        """Each number to all partitions, one request after the other."""
        for value in values:
            answer = await self.send_many(
                [(topic, {n: batch(b"%d" % value) for n in range(topic.partitions)})]
            )
            assert {part.error_code for part in answer.parts} == {0}

    async def drain(self) -> None:
        """As SIGTERM does."""
        await self.registration.set_state(InstanceState.DRAINING)
        await self.service.drain()
        await self.kill()

    async def kill(self) -> None:
        """As SIGKILL does, except that the lease is revoked, which saves the wait for its end."""
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
        for sink in list(self._sinks):
            sink.lose()
        await self.registration.leave()


@dataclass
class Cluster:
    """Instances of one namespace, and what they all left behind."""

    etcd: EtcdClient
    keyspace: Keyspace
    store: ObjectStore
    nodes: list[Node] = field(default_factory=list)
    clients: list[EtcdClient] = field(default_factory=list)

    async def close(self) -> None:
        for node in self.nodes:
            await node.kill()
        for client in (*self.clients, self.etcd):
            await client.close()

    async def node(
        self,
        *,
        node_id: int | None = None,
        store: ObjectStore | None = None,
        etcd: EtcdClient | None = None,
        pace: Pace | None = None,
        **settings: Any,
    ) -> Node:
        node = Node(
            etcd=etcd or self.etcd,
            store=store or self.store,
            keyspace=self.keyspace,
            settings=ProduceSettings(**(SHORT_TIMEOUTS | settings)),
            node_id=node_id,
            pace=pace or Pace(),
        )
        self.nodes.append(node)
        return await node.start()

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> Topic:
        topic = Topic(
            name=name,
            topic_id=TopicId(hashlib.md5(name.encode()).digest()),
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        put = await self.etcd.put(self.keyspace.topic(name), encode_topic(topic))
        return Topic(
            name=name,
            topic_id=topic.topic_id,
            partitions=partitions,
            configs=topic.configs,
            mod_revision=put.revision,
        )

    async def head(self, topic: Topic, partition: int = 0) -> Head:
        found = await self.etcd.get(self.keyspace.head(topic.topic_id, partition))
        assert found is not None, "no head"
        return decode_head(found.value)

    async def meta(self, topic: Topic, partition: int = 0) -> Meta:
        found = await self.etcd.get(self.keyspace.meta(topic.topic_id, partition))
        return decode_meta(found.value) if found else Meta()

    async def owner(self, topic: Topic, partition: int = 0) -> OwnerRecord | None:
        found = await self.etcd.get(self.keyspace.owner(topic.topic_id, partition))
        return decode_owner(found.value) if found else None

    async def segments(self, topic: Topic, partition: int = 0) -> list[Seg]:
        """Of the whole log, from the manifests and the tail, without a gap."""
        found = await self.etcd.ranges(
            [
                Range(self.keyspace.meta(topic.topic_id, partition)),
                Range(self.keyspace.head(topic.topic_id, partition)),
            ]
        )
        meta = decode_meta(found[0].kvs[0].value) if found[0].kvs else Meta()
        head = decode_head(found[1].kvs[0].value)
        segments: list[Seg] = []
        for chunk in meta.chunks:
            found = decode_manifest(await self.store.get(chunk.key)).segments
            assert (found[0].base, found[-1].last, len(found)) == (chunk.first, chunk.last, chunk.count)
            segments += found
        assert meta.manifest_end == (segments[-1].end if segments else 0)
        segments += head.tail
        due = 0
        for seg in segments:
            assert seg.base == due, (seg.base, due)
            due = seg.end
        assert due == head.next, (due, head.next)
        return segments

    async def log(self, topic: Topic, partition: int = 0) -> list[bytes]:
        """Every committed value, from the objects that the commit records name."""
        values: list[bytes] = []
        epoch = 0
        for seg in await self.segments(topic, partition):
            place = place_of(self.keyspace, topic.name, partition, seg)
            body = await place.read(self.store)
            index = index_of(place, seg)
            if index is not None:
                await index.read(self.store)
            verify_segment(body)
            for span in walk_batches(body):
                assert span.offset == len(values), (span.offset, len(values))
                assert span.leader_epoch == seg.epoch >= epoch, (span.leader_epoch, seg.epoch, epoch)
                epoch = seg.epoch
                batch_bytes = body[span.position : span.position + span.size]
                values += [record.value or b"" for record in records_in(batch_bytes)]
        return values


def preferred(topic: Topic, partition: int, nodes: Sequence[Node]) -> Node:
    """Who should own the partition when all of these are ready."""
    by_number = {node.number: node for node in nodes}
    return by_number[rendezvous(topic.topic_id, partition, list(by_number))]


async def change(cluster: Cluster, node: Node, topic: Topic, **other: Any) -> Topic:
    """The topic's record is another from now on, and the instance knows it."""
    changed = replace(topic, **other)
    put = await cluster.etcd.put(cluster.keyspace.topic(topic.name), encode_topic(changed))
    assert await node.service.ownership.world.topics.wait_revision(put.revision, 5)
    return changed
