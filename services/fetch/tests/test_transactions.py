"""Readers of committed data get the records of committed transactions and no others, in every state of the log.

What a client makes of an answer is the Java consumer's rule: from the first offset of an aborted transaction on it
hides its producer's batches, up to the producer's next abort marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from random import Random

import pytest
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.testkit.objects import FaultyStore
from kafscale.wire.errors import ErrorCode
from kafscale.wire.markers import marker_of
from kafscale.wire.records import build_batch, split_batches
from kafscale.wire.schema.fetch import FetchResponsePartition

LATEST = -1
COMMITTED = 1
SEGMENTS = 24


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t")


@pytest.fixture
def log(
    etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore, topic: Topic, as_slices: bool
) -> LogBuilder:
    return LogBuilder(etcd, keyspace, store, topic, as_slices=as_slices)


async def written(log: LogBuilder, seed: int) -> set[int]:
    """Transactions of three producers, and records of none, in many small segments; the last ones stay open. The
    offsets of committed records."""
    chance, begun, committed, offset = Random(seed), dict[int, list[int]](), set[int](), 0
    for _ in range(SEGMENTS):
        batches = []
        for _ in range(chance.randint(1, 3)):
            producer = chance.randrange(4)
            if producer == 3:
                batches.append(build_batch(records(1)))
                committed.add(offset)
                offset += 1
            elif producer in begun and chance.random() < 0.5:
                commit = chance.random() < 0.5
                batches.append(marker(producer, commit=commit))
                ended = begun.pop(producer)
                committed.update(ended if commit else ())
                offset += 1
            else:
                count = chance.randint(1, 2)
                batches.append(transactional(producer, records(count)))
                begun.setdefault(producer, []).extend(range(offset, offset + count))
                offset += count
        await log.append_raw(batches)
    return committed


def delivered(answer: FetchResponsePartition, offset: int) -> Iterator[int]:
    """The offsets of records that a consumer at `offset` hands out."""
    assert answer.aborted_transactions is not None
    waiting = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions]
    assert waiting == sorted(waiting, key=lambda each: each[0])
    heapq.heapify(waiting)
    hidden: set[int] = set()
    for header, batch in split_batches(answer.records or b""):
        while waiting and waiting[0][0] <= header.last_offset:
            hidden.add(heapq.heappop(waiting)[1])
        if header.is_control:
            found = marker_of(batch, header)
            assert found is not None
            if not found.commit:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            yield from (at for at in range(header.base_offset, header.last_offset + 1) if at >= offset)


def reached(answer: FetchResponsePartition) -> int:
    return split_batches(answer.records or b"")[-1][0].last_offset + 1


@pytest.mark.parametrize("seed", range(3))
async def test_committed_records_and_no_others_from_every_offset_and_in_answers_of_every_size(
    etcd, keyspace, store, topic, log, serve, seed: int
) -> None:
    committed = await written(log, seed)
    stable = log.head.lso
    assert stable < log.next
    for keep in (SEGMENTS, 9, 2):
        if keep < SEGMENTS:
            await log.checkpoint(keep=keep)
        async with serve(etcd, keyspace, store) as client:
            for offset in range(stable):
                for size in (1, 300, 1 << 20):
                    answer = await client.fetch(
                        topic, offset, isolation_level=COMMITTED, partition_max_bytes=size, max_bytes=size
                    )
                    assert answer.error_code == ErrorCode.NONE
                    end = reached(answer)
                    assert offset < end <= stable
                    assert list(delivered(answer, offset)) == sorted(
                        at for at in committed if offset <= at < end
                    )
                everything = await client.fetch(topic, offset)
                assert bytes(everything.records) == log.expected(offset)
                assert everything.aborted_transactions is None
                assert (everything.high_watermark, everything.last_stable_offset) == (log.next, stable)


async def test_the_stable_offset_is_the_end_for_readers_of_committed_data(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append_raw([build_batch(records(2)), transactional(7, records(2, timestamp=5_000))])
    async with serve(etcd, keyspace, store) as client:
        ends = [(await client.list_offsets(topic, LATEST, isolation_level=level)).offset for level in (0, 1)]
        assert ends == [4, 2]
        by_time = [
            (await client.list_offsets(topic, 5_000, isolation_level=level)).offset for level in (0, 1)
        ]
        assert by_time == [2, -1]
        answer = await client.fetch(topic, 2, isolation_level=COMMITTED)
        assert (answer.error_code, len(answer.records), answer.aborted_transactions) == (0, 0, [])
        held = client.start_fetch(topic, 2, isolation_level=COMMITTED, max_wait_ms=60_000)
        await log.append_raw([marker(7, commit=True)])
        answer = (await held.fetched()).responses[0].partitions[0]
        assert list(delivered(answer, 2)) == [2, 3]
        assert (await client.list_offsets(topic, LATEST, isolation_level=1)).offset == 5


async def test_a_log_start_past_an_open_transaction_frees_the_readers(
    etcd, keyspace, store, topic, log, serve
) -> None:
    await log.append_raw([transactional(7, records(3)), build_batch(records(3))])
    await log.retain_from(4, delete=False)
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 4, isolation_level=COMMITTED)
        assert (answer.last_stable_offset, len(answer.records)) == (4, 0)
    await log.append_raw([marker(7, commit=False)])
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 4, isolation_level=COMMITTED)
        assert list(delivered(answer, 4)) == [4, 5]
        assert answer.last_stable_offset == 7


async def test_a_manifest_that_cannot_be_read_is_an_error_and_no_shorter_list(
    etcd, keyspace, store, topic, log, serve
) -> None:
    """The marker is listed in the second manifest. The records are in the first one, which is in memory."""
    await log.append_raw([transactional(7, records(1))])
    await log.append_raw([transactional(8, records(1)), marker(8, commit=True)])
    await log.checkpoint(keep=0)
    await log.append_raw([marker(7, commit=False)])
    ref = await log.checkpoint(keep=0)
    body = await store.get(ref.key)
    await store.delete(ref.key)
    async with serve(etcd, keyspace, store) as client:
        assert (await client.fetch(topic, 0, partition_max_bytes=1, max_bytes=1)).error_code == ErrorCode.NONE
        answer = await client.fetch(topic, 0, isolation_level=COMMITTED, partition_max_bytes=1, max_bytes=1)
        assert (answer.error_code, answer.aborted_transactions) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        await store.put(ref.key, [body])
        answer = await client.fetch(topic, 0, isolation_level=COMMITTED, partition_max_bytes=1, max_bytes=1)
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(7, 0)]
        assert list(delivered(answer, 0)) == []


async def test_a_log_without_transactions_is_answered_without_a_search(
    etcd, keyspace, store, topic, log, serve
) -> None:
    for _ in range(3):
        await log.append(records(2))
    await log.checkpoint(keep=0)
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0, isolation_level=COMMITTED)
        assert (answer.aborted_transactions, bytes(answer.records)) == ([], log.expected(0))
