"""The service as a process of its own: it serves over its streams, exposes its metrics, leaves on SIGTERM."""

import asyncio
import contextlib
import os
import signal
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.memory_tuning import MALLOC_ENV
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import Reply, RequestMeta
from kafscale.runtime.stream.options import Stream
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Instance, InstanceState, LiveView
from kafscale.storage.objects import ObjectStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import fetch as api
from kafscale.wire.schema import list_offsets


def fetch_body(topic: str, offset: int, max_wait_ms: int) -> list[bytes]:
    part = api.FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    message = api.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[api.FetchRequestTopic(topic=topic, partitions=[part])],
    )
    return api.encode_request(message, 12)


def latest_body(topic: str) -> list[bytes]:
    part = list_offsets.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
    message = list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsRequestTopic(name=topic, partitions=[part])]
    )
    return list_offsets.encode_request(message, 7)


async def scrape(instance: Instance) -> str:
    url = f"http://{instance.http_address}/metrics"
    return (await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())).decode()


async def ready_instance(view: LiveView) -> Instance:
    async with asyncio.timeout(30):
        changed = asyncio.Event()
        view.subscribe(changed.set)
        while not (ready := [one for one in view.instances() if one.state is InstanceState.READY]):
            changed.clear()
            await changed.wait()
    return ready[0]


@asynccontextmanager
async def service_process(
    etcd: EtcdClient, settings: dict[str, str]
) -> AsyncIterator[tuple[Process, Instance]]:
    view = LiveView(etcd, Keyspace(settings["KAFSCALE_NAMESPACE"]), "fetch")
    watching = asyncio.create_task(view.run())
    await view.loaded()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kafscale.fetch", env={**os.environ, **MALLOC_ENV, **settings}, stderr=DEVNULL
    )
    try:
        yield process, await ready_instance(view)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        watching.cancel()
        await asyncio.wait([watching])


async def test_a_process_serves_tells_its_metrics_and_answers_what_it_holds_when_it_leaves(
    etcd: EtcdClient,
    etcd_server: EtcdProcess,
    keyspace: Keyspace,
    directory_store: ObjectStore,
    tmp_path: Path,
) -> None:
    topic = await create_topic(etcd, keyspace, "t")
    log = LogBuilder(etcd, keyspace, directory_store, topic)
    await log.append(records(100, size=1_000))
    settings = {
        "KAFSCALE_ETCD_ENDPOINTS": etcd_server.endpoint,
        "KAFSCALE_NAMESPACE": keyspace.namespace,
        "KAFSCALE_OBJECT_DIR": str(tmp_path / "objects"),
        "KAFSCALE_CACHE_BYTES": "0",
    }
    async with service_process(etcd, settings) as (process, instance):
        bulk = StreamClient(instance.address, kind=Stream.BULK)
        control = StreamClient(instance.address, kind=Stream.CONTROL)
        meta = RequestMeta(connection_id=1, api_key=ApiKey.FETCH, api_version=12)
        reply = await bulk.send(meta, fetch_body("t", 0, 0)).future
        assert bytes(fetched(reply).records) == log.expected(0)
        latest_meta = RequestMeta(connection_id=1, api_key=ApiKey.LIST_OFFSETS, api_version=7)
        latest = await control.send(latest_meta, latest_body("t")).future
        assert list_offsets.decode_response(latest.body, 7).topics[0].partitions[0].offset == 100
        page = await scrape(instance)
        assert 'kafscale_fetch_requests_total{api="Fetch"} 1.0' in page
        assert 'kafscale_fetch_records_total{topic="t"} 100.0' in page
        assert f'kafscale_fetch_bytes_total{{topic="t"}} {float(len(log.expected(0)))}' in page
        assert "kafscale_fetch_lost_segments_total 0.0" in page
        assert "kafscale_fetch_cache_loads_total 1.0" in page
        assert "kafscale_fetch_cache_bytes 0.0" in page, "an answer that has left pins nothing"
        held = bulk.send(meta, fetch_body("t", 100, 60_000))
        while "kafscale_fetch_held_requests 1.0" not in page:
            page = await scrape(instance)
        process.send_signal(signal.SIGTERM)
        drained = fetched(await held.future)
        assert (drained.error_code, drained.high_watermark) == (0, 100)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        await bulk.close()
        await control.close()


def fetched(reply: Reply) -> api.FetchResponsePartition:
    return api.decode_response(reply.body, 12).responses[0].partitions[0]
