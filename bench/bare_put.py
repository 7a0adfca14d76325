"""A Kafka broker that only stores: each Produce request is one PUT, and if asked one etcd commit, then the answer.

It is the bound of the lines on SeaweedFS. The same load programs drive it, so it pays for the same clients and the same
bytes as KafScale: what KafScale is slower by, KafScale does. It keeps no offsets and nobody can read what it stored, so
it is for measuring alone. Answers leave in the order of their requests, as Kafka's protocol demands; PUTs overlap.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import uvloop
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.ports import free_port
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.etcd.ops import Compare, Put, Txn
from kafscale.storage.objects import IfAbsent, ObjectStore, StoreConfig, open_store
from kafscale.testkit.etcd import etcd_program
from kafscale.testkit.seaweed import SeaweedServer
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.headers import RequestHeader, decode_request_header, response_header_version
from kafscale.wire.schema import api_versions, create_topics, init_producer_id, metadata, produce

from bench.results import Line
from bench.store_limits import METADATA
from bench.tools import s3_server

SERVED: Final[Mapping[ModuleType, tuple[int, int]]] = {
    produce: (3, 9),
    metadata: (1, 9),
    api_versions: (0, 3),
    create_topics: (2, 6),
    init_producer_id: (0, 4),
}
"""By name, not by topic id: there is one broker and it forgets its topics."""
KEYS: Final = {module.API_KEY: module for module in SERVED}
NODE: Final = 1
IN_FLIGHT_MAX: Final = 16
READ_AHEAD_BYTES: Final = 4 << 20
START_TIMEOUT_S: Final = 60.0
HEAD_KEY: Final = b"bare/head"
HEAD_BYTES: Final = 512


class Broker:
    """Answers the five APIs that a producer and an admin client need."""

    def __init__(self, port: int, store: ObjectStore, etcd: EtcdClient | None) -> None:
        self._port = port
        self._store = store
        self._etcd = etcd
        self._topics: dict[str, int] = {}
        self._numbers = itertools.count()
        self._commits = asyncio.Lock()
        self._revision = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the client leaves."""
        answers: asyncio.Queue[asyncio.Task[list[Buffer]] | None] = asyncio.Queue(IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_send(answers, writer))
            while (frame := await _frame(reader)) is not None:
                await answers.put(tasks.create_task(self._answer(frame)))
            await answers.put(None)

    async def _answer(self, frame: bytes) -> list[Buffer]:
        header, at = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        module = KEYS[key]
        if module is api_versions and version > SERVED[module][1]:
            version = 0
        request = None if module is api_versions else module.decode_request(memoryview(frame)[at:], version)
        if isinstance(request, produce.ProduceRequest):
            await self._store_records(request)
        body = module.encode_response(self._response(module, request, header), version)
        tagged = b"\0" if response_header_version(key, version) else b""
        size = 4 + len(tagged) + sum(map(len, body))
        return [struct.pack(">ii", size, header.correlation_id) + tagged, *body]

    async def _store_records(self, request: produce.ProduceRequest) -> None:
        records: list[Buffer] = []
        for topic in request.topic_data:
            for part in topic.partition_data:
                assert isinstance(part.records, bytes | memoryview)
                records.append(part.records)
        key = f"bare/{next(self._numbers):020d}.kfs"
        await self._store.put(key, records, condition=IfAbsent(), metadata=METADATA)
        if self._etcd is not None:
            async with self._commits:
                await self._commit(self._etcd)

    async def _commit(self, etcd: EtcdClient) -> None:
        """A compare-and-swap, as the commit of a head is."""
        txn = Txn(
            compare=(Compare(HEAD_KEY, "mod", "=", self._revision),),
            success=(Put(HEAD_KEY, b"h" * HEAD_BYTES),),
        )
        result = await etcd.txn(txn)
        assert result.succeeded, "only this broker writes the key"
        self._revision = result.revision

    def _response(self, module: ModuleType, request: Any, header: RequestHeader) -> object:
        answers: Mapping[ModuleType, Callable[[Any], object]] = {
            produce: _produced,
            metadata: self._metadata,
            api_versions: lambda _: _versions(header.api_version),
            create_topics: self._created,
            init_producer_id: lambda _: init_producer_id.InitProducerIdResponse(
                producer_id=next(self._numbers)
            ),
        }
        return answers[module](request)

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        names = self._topics if request.topics is None else [topic.name or "" for topic in request.topics]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self._port)],
            cluster_id="bare",
            controller_id=NODE,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=index, leader_id=NODE, leader_epoch=0, replica_nodes=[NODE], isr_nodes=[NODE]
            )
            for index in range(self._topics.get(name, 0))
        ]
        error = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return metadata.MetadataResponseTopic(error_code=int(error), name=name, partitions=partitions)

    def _created(self, request: create_topics.CreateTopicsRequest) -> create_topics.CreateTopicsResponse:
        self._topics.update({topic.name: topic.num_partitions for topic in request.topics})
        made = [
            create_topics.CreateTopicsResponseTopicResult(name=topic.name, error_message=None)
            for topic in request.topics
        ]
        return create_topics.CreateTopicsResponse(topics=made)


def _produced(request: produce.ProduceRequest) -> produce.ProduceResponse:
    return produce.ProduceResponse(
        responses=[
            produce.ProduceResponseTopic(
                name=topic.name,
                partition_responses=[
                    produce.ProduceResponsePartition(index=part.index) for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _versions(version: int) -> api_versions.ApiVersionsResponse:
    known = version <= SERVED[api_versions][1]
    return api_versions.ApiVersionsResponse(
        error_code=int(ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION),
        api_keys=[
            api_versions.ApiVersionsResponseVersion(api_key=module.API_KEY, min_version=low, max_version=high)
            for module, (low, high) in SERVED.items()
        ],
    )


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next request without its length, or None at the end."""
    try:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


async def _send(
    answers: asyncio.Queue[asyncio.Task[list[Buffer]] | None], writer: asyncio.StreamWriter
) -> None:
    try:
        while (answer := await answers.get()) is not None:
            writer.writelines(await answer)
            await writer.drain()
    except ConnectionResetError:
        pass  # the reader sees the same end
    finally:
        writer.close()


@dataclass(slots=True)
class BareStore:
    """A system of the bench: SeaweedFS, perhaps an etcd, and the broker in a thread of this process, which only waits
    while a load runs."""

    folder: Path
    lines: frozenset[Line]
    commits: bool
    port: int = field(default_factory=free_port)
    _seaweed: SeaweedServer | None = None
    _etcd: EtcdProcess | None = None
    _thread: threading.Thread | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _ready: threading.Event = field(default_factory=threading.Event)
    _over: asyncio.Event | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._seaweed = s3_server(self.folder / "weed")
        if self.commits:
            self._etcd = EtcdProcess(etcd_program(), self.folder / "etcd", log_path=self.folder / "etcd.log")
            self._etcd.launch()
            self._etcd.wait_until_healthy()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()), daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError("the bare broker does not listen")

    async def _run(self) -> None:
        assert self._seaweed is not None
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        store = open_store(StoreConfig(kind="s3", s3=self._seaweed.s3_config()))
        etcd = None if self._etcd is None else EtcdClient.connect([self._etcd.endpoint])
        broker = Broker(self.port, store, etcd)
        server = await asyncio.start_server(broker.connected, "127.0.0.1", self.port, limit=READ_AHEAD_BYTES)
        self._ready.set()
        await self._over.wait()
        server.close()
        await store.close()
        if etcd is not None:
            await etcd.close()

    def restart(self) -> float:
        begin = time.monotonic()
        self.stop()
        self.start()
        return time.monotonic() - begin

    def stop(self) -> None:
        if self._loop is not None and self._over is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(START_TIMEOUT_S)
        self._ready.clear()
        if self._etcd is not None:
            self._etcd.kill()
        if self._seaweed is not None:
            self._seaweed.kill()

    def memory(self) -> Mapping[str, int]:
        return {}


PUT_ALONE: Final = frozenset({Line.TWELVE_PARTITIONS})
PUT_AND_COMMIT: Final = frozenset({Line.ONE_PRODUCER})
