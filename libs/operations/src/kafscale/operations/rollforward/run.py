"""Reads, plans, and writes if the operator agrees."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafscale.operations.clusters import Cluster
from kafscale.operations.rollforward.apply import apply
from kafscale.operations.rollforward.bucket import BucketReader
from kafscale.operations.rollforward.metadata import read_metadata, require_stopped
from kafscale.operations.rollforward.topics import Bucket, Metadata, NameTaken, Plan, plan_cluster
from kafscale.operations.sentences import Progress, Trouble
from kafscale.storage.history.history import History
from kafscale.storage.keys import TopicId


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
    try:
        plan = plan_cluster(cluster.keys, metadata, bucket, given=given, fresh=_fresh_names(), now_ms=now_ms)
    except NameTaken as taken:
        raise Trouble(f"--topic-name {taken}") from taken
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
