"""Writes a plan: first manifests, then heads, then topic records.

The laws. Transactions are forgotten before one is aborted in any log, so that no commit of one that is left can end the
rest of it. Each other change of etcd compares the revisions that were read, so a process that runs all the same makes
it fail and nothing is overwritten. No instance claims a partition without a topic record, so a run that ends early
leaves no partition that could begin again at offset 0; the next run continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kafscale.admin import plan as topic_txns
from kafscale.log.heads import Seg, encode_head, encode_meta
from kafscale.log.manifests import encode_manifest
from kafscale.log.meta_swap import send
from kafscale.operations.rollforward.plan import PartitionPlan
from kafscale.operations.rollforward.segments import Filler
from kafscale.operations.rollforward.topics import Metadata, Plan, TopicChange
from kafscale.operations.sentences import Trouble
from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.etcd.client import Compare, Delete, EtcdClient, Put, Txn
from kafscale.storage.keys import META_TOPIC_ID, Keyspace, TopicId, index_beside, prefix_end
from kafscale.storage.objects import IfAbsent, ObjectStore
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import Topic, encode_epoch_floor, encode_topic

WRITES_AT_ONCE: Final = 8


async def apply(etcd: EtcdClient, keys: Keyspace, store: ObjectStore, metadata: Metadata, plan: Plan) -> None:
    """Raises Trouble if etcd has changed since it was read, EtcdError and StoreError. It may be repeated."""
    for prefix in (keys.transactions_prefix(), keys.pendings_prefix()):
        await etcd.delete(prefix, range_end=prefix_end(prefix))
    for change in plan.topics:
        if change.before is not None and change.after is None:
            await _remove(etcd, keys, change.before, change.floor)
    revisions = {topic.topic_id: topic.mod_revision for topic in metadata.topics}
    await gather_bounded(
        (
            _write_partition(etcd, keys, store, each, revisions.get(each.topic_id, 0))
            for each in plan.partitions
            if each.head is not None
        ),
        WRITES_AT_ONCE,
    )
    for name, floor in plan.floors.items():
        _, revision = metadata.floors.get(name, (0, 0))
        await _send(etcd, name, _put_floor(keys, name, floor, revision))
    for change in plan.topics:
        if change.after is not None:
            await _send(etcd, change.after.name, _topic_record(keys, change, change.after))


def _put_floor(keys: Keyspace, name: str, floor: int, revision: int) -> Txn:
    key = keys.epoch_floor(name)
    return Txn(compare=(Compare(key, "mod", "=", revision),), success=(Put(key, encode_epoch_floor(floor)),))


async def _remove(etcd: EtcdClient, keys: Keyspace, topic: Topic, floor: int) -> None:
    """The end of a deletion that etcd does not remember."""
    await _send(etcd, topic.name, topic_txns.drop_heads(keys, topic, floor))
    await _send(etcd, topic.name, topic_txns.free_name(keys, topic))


async def _write_partition(
    etcd: EtcdClient, keys: Keyspace, store: ObjectStore, each: PartitionPlan, topic_revision: int
) -> None:
    """`topic_revision`: of the topic's record, 0 if it is to be created."""
    head = each.head
    assert head is not None, "only changes are written"
    stored = {filler.seg.key: await _put_filler(store, each.topic_id, filler) for filler in each.fillers}
    for key, manifest in each.manifests.items():
        whole = replace(manifest, segments=_with_etags(manifest.segments, stored))
        await store.put(key, [encode_manifest(whole)], condition=IfAbsent())
    head = replace(head, tail=_with_etags(head.tail, stored))
    where = (each.topic_id, each.partition)
    txn = Txn(
        compare=(
            Compare(keys.head(*where), "mod", "=", each.known.head_revision),
            Compare(keys.meta(*where), "mod", "=", each.known.meta_revision),
            Compare(keys.topic(head.topic), "mod", "=", topic_revision),
        ),
        success=(
            Put(keys.head(*where), encode_head(head)),
            Put(keys.meta(*where), encode_meta(each.meta)),
            Put(keys.owner(*where), encode_owner(OwnerRecord(epoch=head.epoch))),
            Delete(keys.compaction_pass(*where)),  # it may have gone through segments that came back
        ),
    )
    await _send(etcd, f"{head.topic}/{each.partition}", txn)


async def _put_filler(store: ObjectStore, topic_id: TopicId, filler: Filler) -> Seg:
    metadata = {META_TOPIC_ID: topic_id.hex()}
    key, built = filler.seg.key, filler.segment
    etag = await store.put(key, built.body, condition=IfAbsent(), metadata=metadata)
    index_etag = await store.put(index_beside(key), [built.index], condition=IfAbsent(), metadata=metadata)
    return replace(filler.seg, etag=etag, index_etag=index_etag)


def _with_etags(segs: Sequence[Seg], stored: Mapping[str, Seg]) -> tuple[Seg, ...]:
    return tuple(stored.get(seg.key, seg) for seg in segs)


def _topic_record(keys: Keyspace, change: TopicChange, after: Topic) -> Txn:
    if change.before is not None:
        return topic_txns.replace_record(keys, change.before, after)
    key = keys.topic(after.name)
    return Txn(compare=(Compare(key, "version", "=", 0),), success=(Put(key, encode_topic(after)),))


async def _send(etcd: EtcdClient, what: str, txn: Txn) -> None:
    sent = await send(etcd, txn)
    if (
        not sent.answer.succeeded
    ):  # or the answer to an earlier send was lost: then the next run finds it done
        raise Trouble(
            f"{what} changed in etcd meanwhile: stop everything that runs, then run the command again"
        )
