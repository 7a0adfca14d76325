"""The cost of a fetch inside the service: catch-up hot and cold, small segments, an idle poll.

    python bench/fetch.py            (starts an etcd; objects are in a temporary directory)

Requests go to the handler in Kafka's bytes; sockets and gRPC are not part of it.
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from kafscale.fetch.metrics import FetchMetrics
from kafscale.fetch.server import FetchService, assemble
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore, StoreConfig, open_store
from kafscale.storage.topics import Topic, TopicsView
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.logbuilder import LogBuilder, create_topic
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import fetch as api

VERSION = 11


class NoSink:
    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        """The bench awaits the handler itself."""


@dataclass(frozen=True, kw_only=True)
class BuiltLog:
    """All batches are alike, so that a reader computes its offset from the number of bytes."""

    topic: Topic
    end: int
    batch_bytes: int
    batch_records: int


class Reader:
    """Reads one partition as a consumer does."""

    def __init__(self, service: FetchService, log: BuiltLog, *, partition_max_bytes: int = 1 << 20) -> None:
        self.service = service
        self.topic = log.topic
        self.batch_bytes = log.batch_bytes
        self.batch_records = log.batch_records
        self.partition_max_bytes = partition_max_bytes
        self.bytes_read = 0
        self.fetches = 0

    async def fetch(self, offset: int) -> int:
        part = api.FetchRequestPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=self.partition_max_bytes
        )
        topics = [api.FetchRequestTopic(topic=self.topic.name, partitions=[part])]
        message = api.FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)
        body = memoryview(b"".join(api.encode_request(message, VERSION)))
        meta = RequestMeta(connection_id=1, api_key=ApiKey.FETCH, api_version=VERSION)
        answer = await self.service.fetch(InboundRequest(meta, body, arrived_ms=0, sink=NoSink()))
        self.fetches += 1
        size = sum(len(buffer) for buffer in answer if isinstance(buffer, memoryview))
        self.bytes_read += size
        return offset + size // self.batch_bytes * self.batch_records

    async def read_all(self, end: int) -> None:
        offset = 0
        while offset < end:
            offset = await self.fetch(offset)


async def build_log(
    etcd: EtcdClient,
    keyspace: Keyspace,
    store: ObjectStore,
    name: str,
    *,
    segments: int,
    batches: int,
    size: int,
) -> BuiltLog:
    topic = await create_topic(etcd, keyspace, name)
    log = LogBuilder(etcd, keyspace, store, topic)
    count = max(1, size // 1_000)
    batch = build_batch([Record(timestamp=1, value=b"x" * 1_000)] * count)
    for at in range(0, segments, 24):
        segs: list[Any] = []
        for _ in range(min(24, segments - at)):
            segs.append(await log.upload([batch] * batches, base=segs[-1].end if segs else log.next))
        log.batches.clear()
        await log.commit(segs)
        await log.checkpoint(keep=min(2, len(log.head.tail) - 1))
    return BuiltLog(topic=topic, end=log.next, batch_bytes=len(batch), batch_records=count)


def report(what: str, reader: Reader, wall_s: float, cpu_s: float) -> None:
    megabytes = reader.bytes_read / 1e6
    sys.stdout.write(
        f"{what:34} {megabytes / wall_s:9.0f} MB/s  {1e3 * cpu_s / megabytes:8.3f} ms CPU/MB  "
        f"{1e6 * cpu_s / reader.fetches:8.0f} us CPU/fetch  {reader.fetches} fetches\n"
    )


async def measure(what: str, reader: Reader, end: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    started_s = time.perf_counter()
    await reader.read_all(end)
    wall_s = time.perf_counter() - started_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report(what, reader, wall_s, cpu_s)


async def run(folder: Path, endpoint: str) -> None:
    etcd, keyspace = EtcdClient.connect([endpoint]), Keyspace("bench")
    store = open_store(StoreConfig(kind="dir", directory=folder / "objects"))
    topics = TopicsView(etcd, keyspace)
    logs = {
        "4 MiB segments, 64 KB batches": {"segments": 24, "batches": 64, "size": 64_000},
        "4 MiB segments, 1 KB batches": {"segments": 12, "batches": 3_800, "size": 1_000},
        "3,000 segments of 1 KB": {"segments": 3_000, "batches": 1, "size": 1_000},
    }
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(topics.run())
            await topics.ready()
            for number, (what, shape) in enumerate(logs.items()):
                log = await build_log(etcd, keyspace, store, f"t{number}", **shape)
                settings = FetchSettings(cache_bytes=256 << 20)
                page = Metrics("fetch")
                service = assemble(
                    settings,
                    etcd=etcd,
                    keyspace=keyspace,
                    store=store,
                    topics=topics,
                    clock=SystemClock(),
                    tasks=tasks,
                    budget=MemoryBudget(settings.memory_bytes),
                    metrics=FetchMetrics(page),
                    authorization=Authorization(None, page),
                )
                await topics.refresh()
                await measure(f"cold, {what}", Reader(service, log), log.end)
                await measure(f"hot, {what}", Reader(service, log), log.end)
            running.cancel()
            raise KeyboardInterrupt
    except* KeyboardInterrupt:
        pass
    await store.close()
    await etcd.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, start_etcd(Path(name)) as etcd:
        uvloop.run(run(Path(name), etcd.endpoint))


if __name__ == "__main__":
    main()
