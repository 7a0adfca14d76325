"""Fetch answers exactly the committed bytes, from the batch that holds the offset on."""

import asyncio

import pytest
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.errors import ErrorCode


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(
    etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore, serve
) -> None:
    topic = await create_topic(etcd, keyspace, "t")
    log = LogBuilder(etcd, keyspace, store, topic)
    await log.append(records(5), records(5), records(5))
    async with serve(etcd, keyspace, store) as client:
        for offset in range(15):
            answer = await client.fetch(topic, offset)
            assert answer.error_code == ErrorCode.NONE
            assert bytes(answer.records) == log.expected(offset)
            assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (15, 15, 0)
