"""Law: what requests leave behind is freed when they are answered. The garbage collector runs rarely, and a
reference cycle may hold a bundle's buffer: then a process grows by what it reads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.garbage import collector_off, cycles
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import Fault, FaultyStore

PARTITIONS = 12
BATCH = records(5, size=2_000)
HELD_MS = 20
CACHE_BYTES = 200_000  # of two bundles
READ_TIMEOUT_MS = 50


class Site:
    """Twelve partitions, and bundles with records of each."""

    def __init__(self, store: FaultyStore, topic: Topic, logs: list[LogBuilder]) -> None:
        self.store = store
        self.topic = topic
        self.logs = logs

    async def write(self) -> None:
        await self.logs[0].append_with(*self.logs[1:], batch=BATCH)

    async def read(self, client, offset: int, **options: int) -> list[int]:
        """The error of each partition."""
        answer = await client.start_fetch(self.topic, *[offset] * PARTITIONS, **options).fetched()
        return [part.error_code for part in answer.responses[0].partitions]


@pytest.fixture
async def site(etcd, keyspace) -> Site:
    store = FaultyStore(MemoryStore())
    topic = await create_topic(etcd, keyspace, "t", partitions=PARTITIONS)
    return Site(store, topic, [LogBuilder(etcd, keyspace, store, topic, n) for n in range(PARTITIONS)])


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    with collector_off():
        yield


Use = Callable[..., Awaitable[None]]


async def misses_hits_and_evictions(site: Site, client, until) -> None:
    for offset in range(0, 50, 5):
        await site.write()
        for _ in range(2):
            assert await site.read(client, offset) == [0] * PARTITIONS
    assert client.service.cache.counters.evictions


async def polls_that_end(site: Site, client, until) -> None:
    """By their time, by a commit, and because nobody waits for them any more."""
    assert await site.read(client, 0, max_wait_ms=HELD_MS) == [0] * PARTITIONS
    for end in (site.write, None):
        call = client.start_fetch(site.topic, *[site.logs[0].next] * PARTITIONS, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1)
        if end is None:
            call.cancel()
            await until(lambda: client.service.fetch.held_requests == 0)
        else:
            await end()
            await call.fetched()


async def manifests(site: Site, client, until) -> None:
    log = site.logs[0]
    for _ in range(5):
        await log.append(BATCH)
    await log.checkpoint(keep=1)
    assert (await client.fetch(site.topic, 0)).error_code == 0


async def offsets_by_time_and_epoch(site: Site, client, until) -> None:
    await site.write()
    for timestamp in (-1, -2, -3, 1):
        assert (await client.list_offsets(site.topic, timestamp, version=8)).error_code == 0
    assert (await client.epoch_end(site.topic, 0)).error_code == 0


async def old_clients(site: Site, client, until) -> None:
    await site.write()
    assert (await client.fetch(site.topic, 0, version=3)).error_code == 0


async def a_store_that_fails(site: Site, client, until) -> None:
    for fault in (Fault.UNAVAILABLE, Fault.BIT_FLIP, Fault.TRUNCATE, Fault.HOLD):
        offset = site.logs[0].next
        await site.write()
        site.store.plan = lambda operation, key, fault=fault: fault if operation == "get" else None
        assert any(await site.read(client, offset)), fault
        site.store.plan = lambda operation, key: None
    site.store.release()


async def objects_that_are_gone(site: Site, client, until) -> None:
    await site.write()
    async for info in site.store.list(""):
        await site.store.delete(info.key)
    assert all(await site.read(client, 0))


async def readers_that_leave_during_a_read(site: Site, client, until) -> None:
    await site.write()
    site.store.plan = lambda operation, key: Fault.HOLD if operation == "get" else None
    site.store.requests.clear()
    call = client.start_fetch(site.topic, *[0] * PARTITIONS)
    await until(lambda: bool(site.store.requests))
    call.cancel()
    site.store.plan = lambda operation, key: None
    site.store.release()


@pytest.mark.parametrize(
    "use",
    [
        misses_hits_and_evictions,
        polls_that_end,
        manifests,
        offsets_by_time_and_epoch,
        old_clients,
        a_store_that_fails,
        objects_that_are_gone,
        readers_that_leave_during_a_read,
    ],
)
async def test_requests_leave_no_cycle(etcd, keyspace, site: Site, serve, until, use: Use) -> None:
    limits = {"cache_bytes": CACHE_BYTES, "fetch_read_timeout_ms": READ_TIMEOUT_MS}
    async with serve(etcd, keyspace, site.store, **limits) as client:
        await cycles()  # of the start
        await asyncio.create_task(use(site, client, until))
        assert not await cycles()
