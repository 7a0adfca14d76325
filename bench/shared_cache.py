"""The gain from a redis for fetch services: reads of a cold log by one service, with the store near and far.

    python bench/shared_cache.py            (starts an etcd, an S3 server and a redis)

Requests go to the handler in Kafka's bytes; sockets and gRPC are not part of it. "Far" is the proxy of slow_s3.py,
which holds each GET for ten milliseconds. Every service starts with an empty memory.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from kafscale.fetch.metrics import FetchMetrics
from kafscale.fetch.server import assemble
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.ports import free_port
from kafscale.runtime.shared_cache import open_shared_cache
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects.s3 import S3Store
from kafscale.storage.topics import TopicsView
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.redis import RedisServer
from kafscale.testkit.seaweed import SeaweedServer

from bench.fetch import BuiltLog, Reader, build_log
from bench.slow_s3 import serve

SEGMENTS = 60
BATCHES = 4
BATCH_BYTES = 1_000_000


class _Read(Exception):
    """Ends the tasks of a service that is no longer needed."""


@asynccontextmanager
async def reader_of(
    etcd: EtcdClient, keyspace: Keyspace, store: S3Store, log: BuiltLog, redis_url: str | None
) -> AsyncIterator[Reader]:
    """A service that has read nothing yet."""
    settings = FetchSettings.model_validate({"redis_url": redis_url, "redis_timeout_ms": 1_000})
    clock, budget, page = SystemClock(), MemoryBudget(settings.memory_bytes), Metrics("fetch")
    try:
        async with asyncio.TaskGroup() as tasks:
            topics = TopicsView(etcd, keyspace)
            tasks.create_task(topics.run())
            await topics.ready()
            service = assemble(
                settings,
                etcd=etcd,
                keyspace=keyspace,
                store=store,
                topics=topics,
                clock=clock,
                tasks=tasks,
                budget=budget,
                metrics=FetchMetrics(page),
                authorization=Authorization(None, page),
                shared=open_shared_cache(settings, clock=clock, budget=budget, metrics=page, tasks=tasks),
            )
            yield Reader(service, log)
            raise _Read
    except* _Read:
        pass


async def measure(what: str, reader: Reader, end: int) -> None:
    wall_s, cpu_s = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    await reader.read_all(end)
    took_s, now = time.perf_counter() - wall_s, resource.getrusage(resource.RUSAGE_SELF)
    spent_s = now.ru_utime + now.ru_stime - cpu_s.ru_utime - cpu_s.ru_stime
    megabytes = reader.bytes_read / 1e6
    sys.stdout.write(
        f"{what:34} {megabytes / took_s:6.0f} MB/s  {1e3 * spent_s / megabytes:6.2f} ms CPU/MB\n"
    )


def wait_until_filled(redis: RedisServer) -> None:
    deadline = time.monotonic() + 60
    while redis.client.dbsize() != SEGMENTS:
        assert time.monotonic() < deadline, "fills were dropped"
        time.sleep(0.01)


async def read_cold(
    what: str, etcd: EtcdClient, keyspace: Keyspace, store: S3Store, redis: RedisServer
) -> None:
    log = await build_log(etcd, keyspace, store, what, segments=SEGMENTS, batches=BATCHES, size=BATCH_BYTES)
    async with reader_of(etcd, keyspace, store, log, None) as reader:
        await measure(f"{what}, without redis", reader, log.end)
    async with reader_of(etcd, keyspace, store, log, redis.url) as reader:
        redis.client.flushall()
        await measure(f"{what}, redis empty", reader, log.end)
        await asyncio.to_thread(wait_until_filled, redis)
    async with reader_of(etcd, keyspace, store, log, redis.url) as reader:
        await measure(f"{what}, from redis", reader, log.end)


async def run(etcd_endpoint: str, s3: SeaweedServer, redis: RedisServer) -> None:
    etcd, keyspace = EtcdClient.connect([etcd_endpoint]), Keyspace("bench")
    near, port = s3.s3_config(), free_port()
    address = urlsplit(s3.endpoint)
    assert address.hostname is not None
    assert address.port is not None
    proxy = asyncio.create_task(serve(port, address.hostname, address.port))
    for what, config in (("near", near), ("far", replace(near, endpoint=f"http://127.0.0.1:{port}"))):
        store = S3Store(config)
        await read_cold(what, etcd, keyspace, store, redis)
        await store.close()
    proxy.cancel()
    await etcd.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, start_etcd(Path(name) / "etcd") as etcd:
        s3, redis = SeaweedServer(Path(name) / "s3"), RedisServer(Path(name) / "redis")
        s3.start()
        redis.start()
        try:
            s3.wait_ready()
            uvloop.run(run(etcd.endpoint, s3, redis))
        finally:
            redis.client.close()
            redis.kill()
            s3.kill()


if __name__ == "__main__":
    main()
