"""What nothing names is collected, and nothing else, whatever owners and readers do meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.orphans import OrphanReport, Orphans
from kafscale.log.heads import Meta, Seg, decode_head, decode_meta
from kafscale.log.manifests import decode_manifest
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import TopicState, encode_topic
from kafscale.testkit.logbuilder import LogBuilder, records

from .interleaved import orders, play
from .owner import STEPS, checkpointing
from .shop import Death, Died, Shop

SEGMENTS = 4
PER_SEGMENT = 5
SAMPLES = 400


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def built(shop: Shop) -> LogBuilder:
    log = await shop.topic("t")
    for _ in range(SEGMENTS):
        await log.append(records(PER_SEGMENT))
    await log.checkpoint(keep=2)
    return log


async def collect(lake: Lake, *, dry: bool = False) -> OrphanReport:
    return await Orphans(lake, grace_s=0).collect(dry=dry)


async def litter(shop: Shop, log: LogBuilder) -> set[str]:
    """One orphan of each kind."""
    keys, topic = shop.keys, log.topic
    own = f"{keys.namespace}/@kafscale"
    found = {
        keys.segment_key(topic.name, 0, 3),
        keys.index_key(topic.name, 0, 3),
        keys.index_key(topic.name, 0, 7),
        keys.manifest_key(topic.topic_id, 0, 0, "left"),
        keys.snapshot_key(topic.topic_id, 0, 5, "left"),
        f"{own}/compacted/{topic.topic_id.hex()}/0/{0:020d}-left.kfs",
        f"{own}/compacted/{topic.topic_id.hex()}/0/{0:020d}-left.index",
    }
    for key in found:
        await shop.store.put(key, [key.encode()])
    return found


async def test_from_the_first_slice_on_every_name_is_left(shop: Shop) -> None:
    """The owner settles slices under such names: an object that nothing names yet may be half of that."""
    log = await built(shop)
    log.as_slices = True
    first = log.next
    await log.append(records(PER_SEGMENT))
    log.as_slices = False
    await log.append(records(PER_SEGMENT))
    keys = shop.keys
    coming = {
        keys.segment_key("t", 0, first),
        keys.index_key("t", 0, first),
        keys.segment_key("t", 0, first + 2),
    }
    below = {keys.segment_key("t", 0, first - 1), keys.index_key("t", 0, first - 1)}
    for key in coming | below:
        await shop.store.put(key, [b"x"])
    kept = shop.store.names() - below
    report = await collect(shop.lake())
    assert shop.store.names() == kept
    assert report.left == len(coming) + 2, "the segment behind the slice and its index too"
    await log.settle()
    await collect(shop.lake())
    assert keys.segment_key("t", 0, first + 2) not in shop.store.names()


async def test_one_of_each_kind_is_collected_and_all_else_is_left(shop: Shop) -> None:
    log = await built(shop)
    keys = shop.keys
    kept = shop.store.names()
    orphans = await litter(shop, log)
    coming = {keys.segment_key("t", 0, log.next), keys.index_key("t", 0, log.next + 5)}
    alien = f"{keys.namespace}/t/0/notes.txt"
    others = {
        f"{keys.namespace}/unknown/0/segment-{0:020d}.kfs",
        f"{keys.namespace}/@kafscale/probe/x",
        alien,
    }
    for key in coming | others:
        await shop.store.put(key, [b"?"])
    before = shop.take()
    dry = await collect(shop.lake(), dry=True)
    assert {orphan.key for orphan in dry.orphans} == orphans
    assert shop.take() == before, "a dry run changes nothing"
    found = await collect(shop.lake())
    assert shop.store.names() == kept | coming | others
    assert (found.partitions, found.left, found.strange_names) == (1, 2, [alien])
    assert found.fates == {Fate.DELETED: len(orphans)}
    again = Death()
    assert (await collect(shop.lake(again))).orphans == []
    assert {"delete", "txn"}.isdisjoint(again.calls), "nothing to collect, nothing to fence"


async def test_on_a_real_etcd_and_a_partition_without_meta(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """The fence makes the meta that it raises, but only beside a head."""
    real = Shop(etcd, keyspace)
    log = await real.topic("t")
    await log.append(records(PER_SEGMENT))
    orphans = await litter(real, log)
    orphans -= {keyspace.index_key("t", 0, 7)}  # that one is above the end of this log
    await collect(real.lake())
    assert real.store.names() & orphans == set()
    kv = await etcd.get(keyspace.meta(log.topic.topic_id, 0))
    assert kv is not None
    assert decode_meta(kv.value) == Meta(gc_seq=1)


async def test_what_stands_where_a_segment_was_deleted_came_later_and_goes(shop: Shop) -> None:
    log = await built(shop)
    await log.retain_from(PER_SEGMENT)
    await log.sweep(PER_SEGMENT)
    late = log.segment_key(log.segments[0])
    await shop.store.put(late, [b"a writer of old"])
    found = await collect(shop.lake())
    assert late in {orphan.key for orphan in found.orphans}
    assert late not in shop.store.names()


async def test_a_segment_that_compaction_replaced_is_an_orphan_under_its_old_name(shop: Shop) -> None:
    log = await built(shop)
    seg = log.segments[-1]
    key = f"{shop.keys.namespace}/@kafscale/compacted/{log.topic.topic_id.hex()}/0/{seg.base:020d}-u.kfs"
    body = await shop.store.get(log.segment_key(seg))
    index = await shop.store.get(shop.keys.index_key("t", 0, seg.base))
    etag = await shop.store.put(key, [body])
    await shop.store.put(key.replace(".kfs", ".index"), [index])
    old = {log.segment_key(seg), shop.keys.index_key("t", 0, seg.base)}
    await log.replace_segment(seg, replace(seg, key=key, etag=etag))
    found = await collect(shop.lake())
    assert {orphan.key for orphan in found.orphans} == old
    assert {key, key.replace(".kfs", ".index")} <= shop.store.names()


async def test_topics_that_are_being_deleted_and_partitions_without_a_head_are_left_alone(shop: Shop) -> None:
    log = await built(shop)
    await litter(shop, log)
    names = shop.store.names()
    await shop.etcd.put(shop.keys.topic("t"), encode_topic(replace(log.topic, state=TopicState.DELETING)))
    assert (await collect(shop.lake())).partitions == 0
    await shop.etcd.put(shop.keys.topic("t"), encode_topic(log.topic))
    await log.delete_head()
    assert (await collect(shop.lake())).orphans == []
    assert shop.store.names() == names


async def test_a_store_that_ignores_conditions_is_not_given_any(shop: Shop) -> None:
    log = await built(shop)
    orphans = await litter(shop, log)
    shop.store.conditional_delete = False
    real, asked = shop.store.delete, []

    async def delete(key: str, *, if_match: str | None = None) -> bool:
        asked.append(if_match)
        return await real(key)

    shop.store.delete = delete  # type: ignore[method-assign]
    await collect(shop.lake())
    assert asked == [None] * len(orphans)
    assert shop.store.names() & orphans == set()


async def everything_named_is_there(shop: Shop, log: LogBuilder) -> None:
    kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
    meta = decode_meta(kv.value) if kv is not None else Meta()
    kv = await shop.etcd.get(shop.keys.head(log.topic.topic_id, 0))
    assert kv is not None
    head = decode_head(kv.value)
    listed: list[Seg] = []
    for chunk in meta.chunks:
        listed += decode_manifest(await shop.store.get(chunk.key)).segments
    if head.snap_key:
        await shop.store.get(head.snap_key)
    segments = (*listed, *head.tail)
    assert [seg.base for seg in segments] == [seg.base for seg in log.segments]
    for seg in segments:
        await shop.store.get(log.segment_key(seg), if_match=seg.etag)


async def test_no_checkpoint_ever_names_what_is_collected(shop: Shop) -> None:
    """Their calls fall in many orders, and each takes the other's objects for its own."""
    log = await built(shop)
    await litter(shop, log)
    before = shop.take()
    actors = {"collector": collect, "owner": checkpointing(log.topic)}
    alone = await play(shop, ["collector"] * 100, actors)
    steps, inserted = alone.count("collector"), alone.count("owner")
    assert inserted == STEPS
    # The last steps are deletions: nothing is decided there any more.
    every = list(orders("collector", steps - 5, "owner", inserted))
    for order in random.Random(5).sample(every, SAMPLES):
        shop.put_back(before)
        await play(shop, order, actors)
        await everything_named_is_there(shop, log)


async def test_killed_anywhere_a_collection_loses_nothing_and_the_next_ends_it(shop: Shop) -> None:
    log = await built(shop)
    kept = shop.store.names()
    await litter(shop, log)
    before = shop.take()
    death = Death()
    await collect(shop.lake(death))
    for at in range(1, len(death.calls) + 1):
        for after in (False, True):
            shop.put_back(before)
            with pytest.raises(Died):
                await collect(shop.lake(Death(at, after=after)))
            await everything_named_is_there(shop, log)
            await collect(shop.lake())
            assert shop.store.names() == kept
