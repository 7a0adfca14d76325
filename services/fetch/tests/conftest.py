"""A fetch service in this process, over a real etcd and a store in memory, spoken to in Kafka's bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from kafscale.access.authorizer import Authorizer
from kafscale.fetch.handlers.fetch import FetchMetrics
from kafscale.fetch.heads import Heads
from kafscale.fetch.server import FetchService, assemble
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.exposition import registry_of
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.shared_cache import open_shared_cache
from kafscale.runtime.stream.frame import ReplyStatus, RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.tasks import AsyncHandler, task_handler
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import Topic, TopicsView
from kafscale.testkit.acls import PEER
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema import fetch, list_offsets, offset_for_leader_epoch

PARTITION_MAX_BYTES = 1 << 20
RESPONSE_MAX_BYTES = 50 << 20


class Sink:
    """Where a request's reply goes."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.status: int | None = None

    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        self.status = status
        if not self.answered.done():
            self.answered.set_result(b"".join(body))


class Call:
    """A request under way."""

    def __init__(self, request: InboundRequest, sink: Sink, version: int) -> None:
        self.request = request
        self.sink = sink
        self.version = version

    async def fetched(self) -> fetch.FetchResponse:
        body = await self.sink.answered
        assert self.sink.status == ReplyStatus.FINAL, self.sink.status
        return fetch.decode_response(body, self.version)

    def cancel(self) -> None:
        for callback in self.request.cancel():
            callback()


class Client:
    """Speaks to the handlers as the stream server would, and reads their bytes."""

    def __init__(
        self, service: FetchService, topics: TopicsView, tasks: asyncio.TaskGroup, page: Metrics
    ) -> None:
        self.service = service
        self._page = page
        self.errors: list[int] = []  # that were counted
        self.topics = topics
        self._clock = SystemClock()
        self._handlers = {
            ApiKey.FETCH: task_handler(service.fetch, tasks),
            ApiKey.LIST_OFFSETS: task_handler(service.list_offsets, tasks),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: task_handler(service.offset_for_leader_epoch, tasks),
        }

    def metric(self, name: str) -> float:
        return registry_of(self._page.read()).get_sample_value(f"kafscale_fetch_{name}") or 0.0

    def send(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        *,
        revision: int = 0,
        log_start_revision: int = 0,
        principal: str | None = None,
    ) -> Call:
        meta = RequestMeta(
            connection_id=1,
            api_key=key,
            api_version=version,
            revision=revision,
            log_start_revision=log_start_revision,
            principal=principal,
            peer=PEER,
        )
        sink = Sink()
        request = InboundRequest(
            meta,
            memoryview(b"".join(body)),
            arrived_ms=self._clock.now_ms(),
            sink=sink,
            count_error=lambda _, code: self.errors.append(code),
        )
        self._handlers[key](request)
        return Call(request, sink, version)

    def start_fetch(
        self,
        topic: Topic,
        *offsets: int,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = RESPONSE_MAX_BYTES,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        revision: int = 0,
        log_start_revision: int = 0,
        leader_epoch: int = -1,
        isolation_level: int = 0,
        session: tuple[int, int] = (0, -1),
    ) -> Call:
        """Partition n from the n-th offset."""
        request = fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                fetch.FetchRequestTopic(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        fetch.FetchRequestPartition(
                            partition=n,
                            fetch_offset=offset,
                            partition_max_bytes=partition_max_bytes,
                            current_leader_epoch=leader_epoch,
                        )
                        for n, offset in enumerate(offsets)
                    ],
                )
            ],
        )
        body = fetch.encode_request(request, version)
        return self.send(
            ApiKey.FETCH, version, body, revision=revision, log_start_revision=log_start_revision
        )

    async def fetch(self, topic: Topic, offset: int, **options: int) -> fetch.FetchResponsePartition:
        """One partition's answer."""
        response = await self.start_fetch(topic, offset, **options).fetched()
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    async def list_offsets(
        self,
        topic: Topic,
        timestamp: int,
        *,
        version: int = 11,
        leader_epoch: int = -1,
        partitions: Sequence[int] = (0,),
        count: int = 1,
        isolation_level: int = 0,
    ) -> list_offsets.ListOffsetsResponsePartition:
        """The first partition's answer."""
        request = list_offsets.ListOffsetsRequest(
            isolation_level=isolation_level,
            topics=[
                list_offsets.ListOffsetsRequestTopic(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsRequestPartition(
                            partition_index=partition,
                            timestamp=timestamp,
                            current_leader_epoch=leader_epoch,
                            max_num_offsets=count,
                        )
                        for partition in partitions
                    ],
                )
            ],
        )
        call = self.send(ApiKey.LIST_OFFSETS, version, list_offsets.encode_request(request, version))
        body = await call.sink.answered
        assert call.sink.status == ReplyStatus.FINAL
        return list_offsets.decode_response(body, version).topics[0].partitions[0]

    async def epoch_end(
        self, topic: Topic, epoch: int, *, version: int = 4, leader_epoch: int = -1, partition: int = 0
    ) -> offset_for_leader_epoch.OffsetForLeaderEpochResponseEnd:
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(
                    topic=topic.name,
                    partitions=[
                        offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(
                            partition=partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
                        )
                    ],
                )
            ]
        )
        body = offset_for_leader_epoch.encode_request(request, version)
        call = self.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)
        answer = await call.sink.answered
        assert call.sink.status == ReplyStatus.FINAL
        return offset_for_leader_epoch.decode_response(answer, version).topics[0].partitions[0]


class _Stop(Exception):
    pass


@asynccontextmanager
async def serving(
    etcd: EtcdClient,
    keyspace: Keyspace,
    store: ObjectStore,
    redis_url: str | None = None,
    authorizer: Authorizer | None = None,
    **settings: int,
) -> AsyncIterator[Client]:
    """A running service; a failing test's error comes out as it is."""
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            topics = TopicsView(etcd, keyspace)
            tasks.create_task(topics.run())
            await topics.ready()
            values = FetchSettings(redis_url=redis_url, **settings)
            clock, budget, page = SystemClock(), MemoryBudget(values.memory_bytes), Metrics("fetch")
            service = assemble(
                values,
                etcd=etcd,
                keyspace=keyspace,
                store=store,
                topics=topics,
                clock=clock,
                tasks=tasks,
                metrics=FetchMetrics(page),
                budget=budget,
                authorization=Authorization(authorizer, page),
                shared=open_shared_cache(values, clock=clock, budget=budget, metrics=page, tasks=tasks),
            )
            try:
                yield Client(service, topics, tasks, page)
            except Exception as error:  # noqa: BLE001  # raised below, outside of the group
                failure = error
            raise _Stop
    except* _Stop:
        pass
    if failure is not None:
        raise failure


Serving = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def serve() -> Serving:
    return serving


@pytest.fixture
def until() -> Callable[..., object]:
    """Waits for a condition that nothing announces, yielding to the loop in between."""

    async def wait(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.002)

    return wait


@pytest.fixture
def deafen(monkeypatch: pytest.MonkeyPatch, until: Callable[..., Awaitable[None]]) -> Callable[..., object]:
    """From now on no watch event arrives; the read with which the watch begins has ended."""

    async def stop_listening(client: Client) -> None:
        heads = client.service.heads
        await until(lambda: heads._following is not None)
        monkeypatch.setattr(Heads, "_apply", lambda self, batch: None)

    return stop_listening


__all__ = ["AsyncHandler", "Call", "Client", "Serving"]


@pytest.fixture(params=[False, True], ids=["segments", "slices"])
def as_slices(request: pytest.FixtureRequest) -> bool:
    """Whether the tail of a log has segments or slices of bundles: readers must not notice."""
    return bool(request.param)
