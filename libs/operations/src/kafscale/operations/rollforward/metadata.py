"""Reads what etcd holds of topics and partitions."""

from __future__ import annotations

import asyncio
from typing import Final

from kafscale.log.heads import Head, Meta, decode_head, decode_meta
from kafscale.operations.rollforward.plan import Known
from kafscale.operations.rollforward.topics import Metadata
from kafscale.operations.sentences import Trouble
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.recovery_keys import epoch_floors_prefix, parse_epoch_floor, parse_meta
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, decode_epoch_floor, decode_topic

KEYS_PER_READ: Final = 500
LOOK_AGAIN_S: Final = 0.5
LOOKS: Final = 40
"""A restored etcd keeps the registrations of its snapshot for the time of their leases, eight seconds."""


async def require_stopped(etcd: EtcdClient, keys: Keyspace) -> None:
    """Waits for the end of old registrations. Raises Trouble if an instance runs."""
    for _ in range(LOOKS):
        live = await etcd.prefix(keys.live_prefix(), keys_only=True)
        if not live.kvs:
            return
        await asyncio.sleep(LOOK_AGAIN_S)
    running = sorted({keys.parse_live(kv.key)[0] for kv in live.kvs})
    raise Trouble(f"stop the cluster first: in etcd are registered {', '.join(running)}")


async def read_metadata(etcd: EtcdClient, keys: Keyspace) -> Metadata:
    """Raises EtcdError. Values that cannot be read are listed, and nothing is planned for what they describe."""
    unreadable: dict[str, str] = {}
    topics: list[Topic] = []
    bad_topics: set[str] = set()
    async for kv in etcd.each(keys.topics_prefix(), page_keys=KEYS_PER_READ):
        try:
            topics.append(decode_topic(keys.parse_topic(kv.key), kv.value, kv.mod_revision))
        except UnreadableValue as broken:
            unreadable[kv.key.decode(errors="replace")] = str(broken)
            bad_topics.add(keys.parse_topic(kv.key))
    heads: dict[PartitionKey, tuple[Head, int]] = {}
    metas: dict[PartitionKey, tuple[Meta, int]] = {}
    bad: set[PartitionKey] = set()
    async for kv in etcd.each(keys.heads_prefix(), page_keys=KEYS_PER_READ):
        where = keys.parse_head(kv.key)
        try:
            heads[where] = decode_head(kv.value), kv.mod_revision
        except UnreadableValue as broken:
            unreadable[kv.key.decode(errors="replace")] = str(broken)
            bad.add(where)
    async for kv in etcd.each(keys.metas_prefix(), page_keys=KEYS_PER_READ):
        where = parse_meta(keys, kv.key)
        try:
            metas[where] = decode_meta(kv.value), kv.mod_revision
        except UnreadableValue as broken:
            unreadable[kv.key.decode(errors="replace")] = str(broken)
            bad.add(where)
    return Metadata(
        topics=tuple(topics),
        known={where: _known(where, heads, metas) for where in heads.keys() | metas.keys()},
        floors=await _floors(etcd, keys, unreadable, bad_topics),
        unreadable=unreadable,
        bad_partitions=frozenset(bad),
        bad_topics=frozenset(bad_topics),
    )


def _known(
    where: PartitionKey,
    heads: dict[PartitionKey, tuple[Head, int]],
    metas: dict[PartitionKey, tuple[Meta, int]],
) -> Known:
    head, head_revision = heads.get(where, (None, 0))
    meta, meta_revision = metas.get(where, (Meta(), 0))
    return Known(head=head, head_revision=head_revision, meta=meta, meta_revision=meta_revision)


async def _floors(
    etcd: EtcdClient, keys: Keyspace, unreadable: dict[str, str], bad_topics: set[str]
) -> dict[str, tuple[int, int]]:
    floors: dict[str, tuple[int, int]] = {}
    async for kv in etcd.each(epoch_floors_prefix(keys), page_keys=KEYS_PER_READ):
        name = parse_epoch_floor(keys, kv.key)
        try:
            floors[name] = decode_epoch_floor(kv.value), kv.mod_revision
        except UnreadableValue as broken:
            unreadable[kv.key.decode(errors="replace")] = str(broken)
            bad_topics.add(name)
    return floors
