"""A checkpoint moves segments from the head to a manifest in one transaction. Both halves arrive together, unless etcd
loses an event.

If only the head's half is known, committed segments are listed nowhere: no answer may pass over them, and a
read of etcd returns both halves. `halves_apart` holds the metas' half back for good.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from kafscale.fetch.heads import Heads
from kafscale.fetch.log_table import LogTable
from kafscale.fetch.lookup import LOOKS_MAX
from kafscale.log.state import LogState
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import PartitionKey
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, split_batches

EARLIEST, MAX_TIMESTAMP = -2, -3
BUSY_S = 240.0
CHECKPOINTS = 20
META_DELAY_S = 0.003

HalvesApart = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def topic(etcd, keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t", partitions=2)


@pytest.fixture
async def log(etcd, keyspace, store, topic: Topic) -> LogBuilder:
    """Segments of three records, 0..11 in a manifest, 12..29 in the tail; each record 100 ms after the one before."""
    log = LogBuilder(etcd, keyspace, store, topic)
    for n in range(10):
        times = range(1_000 + 300 * n, 1_300 + 300 * n, 100)
        await log.append([Record(timestamp=at, key=b"k", value=b"v%d" % at) for at in times])
        if n == 5:
            await log.checkpoint(keep=2)
    return log


@pytest.fixture
def halves_apart(monkeypatch) -> HalvesApart:
    """Inside the context nobody hears of metas."""

    @contextmanager
    def apart() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(LogTable, "learn_meta", lambda self, *known: None)
            yield

    return apart


async def tear(client, log: LogBuilder, halves_apart: HalvesApart) -> None:
    """The service knows the head's half of a checkpoint, and not the meta's."""
    heads, key = client.service.heads, (log.topic.topic_id, 0)
    with halves_apart():
        await log.checkpoint(keep=2)
        await heard(client, log)
    assert heads.known(key).torn


async def heard(client, log: LogBuilder) -> None:
    heads, key = client.service.heads, (log.topic.topic_id, 0)
    with heads.wakeup([key]) as wakeup:
        while heads.known(key).tail_start != log.head.tail[0].base:
            wakeup.clear()
            await wakeup.wait(1_000)


def holes(record_set: bytes) -> list[tuple[int, int]]:
    """(offset that is due, offset that is there) wherever a batch does not follow the one before."""
    found = []
    headers = [header for header, _ in split_batches(record_set)]
    for before, after in zip(headers, headers[1:], strict=False):
        if after.base_offset != before.last_offset + 1:
            found.append((before.last_offset + 1, after.base_offset))
    return found


@pytest.mark.parametrize("offset", [0, 10, 12, 20, 25])
async def test_a_fetch_is_whole_while_the_halves_of_a_checkpoint_are_apart(
    etcd, keyspace, store, topic, log, serve, halves_apart, offset: int
) -> None:
    """Below the hole, in it and above it."""
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, log.next)
        await tear(client, log, halves_apart)
        assert bytes((await client.fetch(topic, offset)).records) == log.expected(offset)


async def test_offsets_by_time_are_found_though_half_of_a_checkpoint_comes_after_the_look(
    etcd, keyspace, store, topic, log, serve, halves_apart, monkeypatch
) -> None:
    """etcd's answer is already there when the owner checkpoints, and only the head's half is heard."""
    real, torn = EtcdClient.ranges, []
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, log.next)

        async def ranges(self, reads, **how):
            found = await real(self, reads, **how)
            if not torn:
                torn.append(True)
                await tear(client, log, halves_apart)
            return found

        monkeypatch.setattr(EtcdClient, "ranges", ranges)
        assert (await client.list_offsets(topic, 1_900)).offset == 9
        assert torn


async def test_a_state_that_stays_torn_is_never_answered_from(
    etcd, keyspace, store, topic, log, serve, halves_apart
) -> None:
    """The looks have a bound, and after it the client gets a retriable error."""
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, log.next)
        await client.list_offsets(topic, EARLIEST, partitions=[1])
        heads = client.service.heads
        with halves_apart():
            await log.checkpoint(keep=2)
            await heard(client, log)
            reads = heads.reads
            for offset in (0, 25, log.next):
                answer = await client.fetch(topic, offset)
                assert (answer.error_code, bytes(answer.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
            assert heads.reads - reads == 3 * LOOKS_MAX
            for timestamp in (1_100, 3_900, EARLIEST, MAX_TIMESTAMP):
                found = await client.list_offsets(topic, timestamp)
                assert (found.error_code, found.offset) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            for timestamp in (3_900, EARLIEST):
                old = await client.list_offsets(topic, timestamp, version=0, count=9)
                assert (old.error_code, list(old.old_style_offsets)) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
            end = await client.epoch_end(topic, 1)
            assert (end.error_code, end.end_offset) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            other = await client.list_offsets(topic, EARLIEST, partitions=[1])
            assert (other.error_code, other.offset) == (ErrorCode.NONE, 0)
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)


@pytest.fixture
def metas_late(monkeypatch) -> list[PartitionKey]:
    """Delays the watch events of metas. Returns the partitions that were seen torn meanwhile."""
    torn: list[PartitionKey] = []
    learn_meta, state, apply = LogTable.learn_meta, LogTable.state, Heads._apply

    def late(table: LogTable, *known: object) -> None:
        asyncio.get_running_loop().call_later(META_DELAY_S, learn_meta, table, *known)

    def seen(table: LogTable, key: PartitionKey) -> LogState | None:
        found = state(table, key)
        if found is not None and found.torn:
            torn.append(key)
        return found

    def apart(heads: Heads, *told: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LogTable, "learn_meta", late)
            apply(heads, *told)

    monkeypatch.setattr(LogTable, "state", seen)
    monkeypatch.setattr(Heads, "_apply", apart)
    return torn


class Owner:
    """Commits and checkpoints until it has done so often and somebody was in between."""

    def __init__(self, log: LogBuilder, torn: list[PartitionKey]) -> None:
        self.log = log
        self.torn = torn
        self.checkpoints = 0

    @property
    def is_done(self) -> bool:
        return self.checkpoints >= CHECKPOINTS and bool(self.torn)

    async def own(self) -> None:
        while not self.is_done:
            await self.log.append(records(3))
            if len(self.log.head.tail) > 24:
                await self.log.checkpoint(keep=8)
                self.checkpoints += 1


async def stay_behind(client, owner: Owner) -> int:
    """Fetches again and again what the manifest before the newest lists; how often that was answered."""
    answered = 0
    while not owner.is_done:
        start = max(0, owner.log.meta.manifest_end - 57)
        answer = await client.fetch(owner.log.topic, start)
        if answer.error_code == ErrorCode.NONE:
            assert bytes(answer.records).startswith(owner.log.expected(start, start))
            assert holes(bytes(answer.records)) == []
            answered += 1
    return answered


@pytest.mark.timeout(300)
async def test_readers_behind_the_tail_miss_nothing_while_their_owner_checkpoints(
    etcd, keyspace, store, topic, serve, metas_late
) -> None:
    """A real watch on a real etcd, whose metas are learned a little later than its heads."""
    owner = Owner(LogBuilder(etcd, keyspace, store, topic), metas_late)
    await owner.log.append(records(3))
    async with serve(etcd, keyspace, store) as client:
        await client.fetch(topic, 0)
        async with asyncio.timeout(BUSY_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(owner.own())
            readers = [tasks.create_task(stay_behind(client, owner)) for _ in range(3)]
    assert sum(reader.result() for reader in readers) > owner.checkpoints
