"""What an owner does to a partition beside retention and the collection of orphans: real checkpoints, call by call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from kafscale.lake.catalog import Lake
from kafscale.log.heads import decode_head, encode_head
from kafscale.log.snapshots import ProducerBatch, ProducerEntry, ProducerSnapshot
from kafscale.produce.checkpoint import Checkpointer, Merges, Uploaded
from kafscale.produce.log.model import PartitionId, TakeCheckpoint
from kafscale.produce.log.plans import plan_manifest
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pieces import Pieces
from kafscale.produce.puts import Pace
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import Compare, Put, Txn
from kafscale.storage.topics import Topic

STEPS = 5
"""Head, meta, snapshot, manifest, transaction."""
_PRODUCER = ProducerEntry(
    producer_id=7, epoch=0, last_ms=1, batches=(ProducerBatch(first_seq=0, last_seq=4, base=0, ts=1),)
)


def checkpointing(topic: Topic, keep: int = 1) -> Callable[[Lake], Coroutine[Any, Any, bool]]:
    """One checkpoint by the owner's own code, and its transaction as the writer makes it; whether it was made."""
    numbers = iter(range(1 << 30))

    def fresh_id() -> bytes:
        return next(numbers).to_bytes(16, "big")

    async def act(lake: Lake) -> bool:
        where = (topic.topic_id, 0)
        kv = await lake.etcd.get(lake.keys.head(*where))
        assert kv is not None
        head = decode_head(kv.value)
        manifest = plan_manifest(head, keep)
        known = ProducerTable.restore(ProducerSnapshot(offset=head.next, producers=(_PRODUCER,)))
        snapshot = known.begin_snapshot(head.next, wall_ms=_PRODUCER.last_ms)
        checkpointer = Checkpointer(
            lake.etcd, lake.store, _pace(lake), lake.keys, fresh_id, Pieces(), _never_merging(lake, fresh_id)
        )
        place = PartitionId(topic=topic.name, topic_id=topic.topic_id, partition=0)
        done = await checkpointer.upload(place, TakeCheckpoint(plan=1, manifest=manifest, snapshot=snapshot))
        if not isinstance(done, Uploaded):
            return False
        moved = len(manifest.segments) if manifest else 0
        head = replace(head, tail=head.tail[moved:], snap_key=done.snap_key, snap_offset=head.next)
        head_key, meta_key = lake.keys.head(*where), lake.keys.meta(*where)
        compare = (
            Compare(head_key, "mod", "=", kv.mod_revision),
            Compare(meta_key, "mod", "=", done.meta.expected_revision),
        )
        puts = (Put(head_key, encode_head(head)), Put(meta_key, done.meta.value))
        return (await lake.etcd.txn(Txn(compare=compare, success=puts))).succeeded

    return act


def _never_merging(lake: Lake, fresh_id: Callable[[], bytes]) -> Merges:
    """None is due: these logs have few manifests."""

    def begin(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise AssertionError("a merge")

    metrics = ProduceMetrics(Metrics("produce"))
    return Merges(
        lake.store, _pace(lake), lake.keys, fresh_id, begin=begin, clock=SystemClock(), metrics=metrics
    )


def _pace(lake: Lake) -> Pace:
    return Pace(lake.store, SystemClock())
