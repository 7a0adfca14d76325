"""Reads, plans, and writes if the operator agrees."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kafscale.log.heads import Head, Meta, decode_head, decode_meta
from kafscale.operations.clusters import Cluster
from kafscale.operations.rollforward.apply import apply
from kafscale.operations.rollforward.batches import with_events
from kafscale.operations.rollforward.bucket import BucketReader
from kafscale.operations.rollforward.plan import Known
from kafscale.operations.rollforward.topics import Bucket, Metadata, NameTaken, Plan, plan_cluster
from kafscale.operations.sentences import Progress, Trouble
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.recovery_keys import epoch_floors_prefix, parse_epoch_floor, parse_meta
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import decode_epoch_floor, decode_topic

KEYS_PER_READ: Final = 500
LOOK_AGAIN_S: Final = 0.5
LOOKS: Final = 40
"""A restored etcd keeps the registrations of its snapshot for the time of their leases, eight seconds."""

K = TypeVar("K")
V = TypeVar("V")


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
    read = partial(_values, etcd, unreadable)
    topics, bad_topics = await read(
        keys.topics_prefix(),
        keys.parse_topic,
        lambda kv: decode_topic(keys.parse_topic(kv.key), kv.value, kv.mod_revision),
    )
    heads, bad_heads = await read(
        keys.heads_prefix(), keys.parse_head, lambda kv: (decode_head(kv.value), kv.mod_revision)
    )
    metas, bad_metas = await read(
        keys.metas_prefix(), partial(parse_meta, keys), lambda kv: (decode_meta(kv.value), kv.mod_revision)
    )
    floors, bad_floors = await read(
        epoch_floors_prefix(keys),
        partial(parse_epoch_floor, keys),
        lambda kv: (decode_epoch_floor(kv.value), kv.mod_revision),
    )
    return Metadata(
        topics=tuple(topics.values()),
        known={where: _known(heads.get(where), metas.get(where)) for where in heads.keys() | metas.keys()},
        floors=floors,
        unreadable=unreadable,
        bad_partitions=frozenset(bad_heads | bad_metas),
        bad_topics=frozenset(bad_topics | bad_floors),
        transactional_ids=await _count(etcd, keys.transactions_prefix()),
        pending=await _count(etcd, keys.pendings_prefix()),
    )


async def _count(etcd: EtcdClient, prefix: bytes) -> int:
    return len((await etcd.prefix(prefix, keys_only=True)).kvs)


async def _values(
    etcd: EtcdClient,
    unreadable: dict[str, str],
    prefix: bytes,
    named: Callable[[bytes], K],
    decode: Callable[[KeyValue], V],
) -> tuple[dict[K, V], set[K]]:
    """The values below a prefix by what their keys name, and the names whose values cannot be read."""
    found: dict[K, V] = {}
    bad: set[K] = set()
    async for kv in etcd.each(prefix, page_keys=KEYS_PER_READ):
        name = named(kv.key)
        try:
            found[name] = decode(kv)
        except UnreadableValue as broken:
            unreadable[kv.key.decode(errors="replace")] = str(broken)
            bad.add(name)
    return found, bad


def _known(head: tuple[Head, int] | None, meta: tuple[Meta, int] | None) -> Known:
    (known_head, head_revision), (known_meta, meta_revision) = head or (None, 0), meta or (Meta(), 0)
    return Known(head=known_head, head_revision=head_revision, meta=known_meta, meta_revision=meta_revision)


@dataclass(frozen=True, slots=True)
class Look:
    """What was read, and what follows from it. `history`: why etcd's history is not the bucket's; None: it is."""

    metadata: Metadata
    bucket: Bucket
    plan: Plan
    history: str | None


async def look(cluster: Cluster, given: Mapping[TopicId, str], now_ms: int, progress: Progress) -> Look:
    """Changes nothing. Raises Trouble if the cluster runs, or if its bucket is empty and etcd is not."""
    await require_stopped(cluster.etcd, cluster.keys)
    metadata = await read_metadata(cluster.etcd, cluster.keys)
    bucket = await BucketReader(cluster.store, cluster.keys, progress).read(metadata)
    if not any(found.pieces for found in bucket.found.values()) and any(
        known.head is not None and known.head.next > known.meta.log_start for known in metadata.known.values()
    ):
        raise Trouble(
            f"etcd has records of the namespace {cluster.keys.namespace!r}, and the bucket has none: "
            "look at KAFSCALE_S3_* and --namespace"
        )
    planned = partial(plan_cluster, cluster.keys, metadata, given=given, fresh=_fresh_names(), now_ms=now_ms)
    try:
        plan = planned(bucket)
    except NameTaken as taken:
        raise Trouble(f"--topic-name {taken}") from taken
    if any(each.unread for each in plan.partitions):
        bucket = await with_events(cluster.store, cluster.keys, bucket, plan, progress)
        plan = planned(bucket)
    return Look(metadata, bucket, plan, await _history(cluster).trouble())


async def carry_out(cluster: Cluster, seen: Look) -> None:
    """The new history comes last: if this ends early, no process claims anything in an etcd that lacks records."""
    await apply(cluster.etcd, cluster.keys, cluster.store, seen.metadata, seen.plan)
    await _history(cluster).begin_anew()


def _history(cluster: Cluster) -> History:
    return History(cluster.etcd, cluster.keys, cluster.store)


def _fresh_names() -> Iterator[str]:
    while True:
        yield uuid.uuid4().hex
