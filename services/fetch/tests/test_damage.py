"""Damage of one partition's data is that partition's error, and the fetch service goes on."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.log.heads import HEAD_FEATURES
from kafscale.log.manifests import MANIFEST_FEATURES
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1 import store_pb2 as pb
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.errors import ErrorCode

GARBAGE = b"\xff\xff garbage"


@pytest.mark.parametrize("newer", [True, False], ids=["newer", "garbage"])
@pytest.mark.parametrize("kind", ["manifest", "head", "meta"])
async def test_what_cannot_be_read_of_one_partition_leaves_the_others_served(
    etcd: EtcdClient, keyspace: Keyspace, serve: Any, kind: str, newer: bool
) -> None:
    store = MemoryStore()
    topic = await create_topic(etcd, keyspace, "t", partitions=2)
    log, other = LogBuilder(etcd, keyspace, store, topic), LogBuilder(etcd, keyspace, store, topic, 1)
    for _ in range(3):
        await log.append(records(3))
    await other.append(records(3))
    ref = await log.checkpoint(keep=1)
    if kind == "manifest":
        manifest = pb.Manifest.FromString(await store.get(ref.key))
        manifest.schema = SCHEMA + MANIFEST_FEATURES + 1
        await store.put(ref.key, [manifest.SerializeToString() if newer else GARBAGE])
    else:
        key = keyspace.head(topic.topic_id, 0) if kind == "head" else keyspace.meta(topic.topic_id, 0)
        message = pb.Head(schema=SCHEMA + HEAD_FEATURES + 1) if kind == "head" else pb.Meta(schema=2)
        await etcd.put(key, message.SerializeToString() if newer else GARBAGE)
    async with serve(etcd, keyspace, store) as client:
        for _ in range(2):
            answer = await client.start_fetch(topic, 0, 0).fetched()
            told = {part.partition_index: part.error_code for part in answer.responses[0].partitions}
            assert told == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.NONE}


async def test_a_topic_whose_record_is_damaged_is_not_called_unknown(
    etcd: EtcdClient, keyspace: Keyspace, serve: Any
) -> None:
    store = MemoryStore()
    topic = await create_topic(etcd, keyspace, "t")
    await LogBuilder(etcd, keyspace, store, topic).append(records(3))
    await etcd.put(keyspace.topic("t"), GARBAGE)
    async with serve(etcd, keyspace, store) as client:
        answer = await client.fetch(topic, 0, version=12)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
