"""fsck finds each way in which etcd and the store can disagree, and nothing in a log that is whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from kafscale.log.heads import encode_head, encode_meta
from kafscale.log.manifests import Manifest, encode_manifest
from kafscale.operations.fsck.run import Fsck, Verdict
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.records import build_batch

Damage = Callable[[LogBuilder, MemoryStore, EtcdClient], Awaitable[None]]


async def check(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> Verdict:
    return await Fsck(etcd, keyspace, store, lambda *_: None).run()


async def build(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> LogBuilder:
    """Six segments, two of them in a manifest, over two epochs."""
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "orders"))
    for n in range(6):
        if n == 3:
            await log.claim(2)
        await log.append(records(150), records(120))
    await log.checkpoint(keep=4)
    return log


async def test_a_whole_log_is_clean_and_counted(etcd: EtcdClient, keyspace: Keyspace) -> None:
    store = MemoryStore()
    await build(etcd, keyspace, store)
    verdict = await check(etcd, keyspace, store)
    assert verdict.problems == []
    assert (verdict.topics, verdict.partitions, verdict.segments, verdict.records) == (1, 1, 6, 6 * 270)
    assert verdict.orphans == []


async def test_slices_are_checked_in_their_bundles(etcd: EtcdClient, keyspace: Keyspace) -> None:
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    log.as_slices = True
    seg = await log.append(records(100), records(20))
    verdict = await check(etcd, keyspace, store)
    assert (verdict.problems, verdict.segments, verdict.orphans) == ([], 7, [])
    key = log.segment_key(seg)
    await flip(store, key, seg.position + 100)
    info = await store.head(key)
    assert info is not None
    await log.replace_segment(seg, replace(seg, etag=info.etag))
    (problem,) = (await check(etcd, keyspace, store)).problems
    assert problem.where == f"{key}@{seg.position}"
    await store.delete(key)
    (problem,) = (await check(etcd, keyspace, store)).problems
    assert problem.what == f"is committed and not in the store (etag {info.etag})"


async def flip(store: MemoryStore, key: str, at: int) -> None:
    data = bytearray(await store.get(key))
    data[at] ^= 1
    await store.put(key, [bytes(data)])


async def lose_segment(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await store.delete(log.segment_key(log.segments[1]))


async def lose_index(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await store.delete(log.segment_key(log.segments[4]).replace(".kfs", ".index"))


async def replace_object(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await store.put(log.segment_key(log.segments[5]), [b"something else"])


async def corrupt_and_commit(log: LogBuilder, store: MemoryStore, etcd: EtcdClient, at: int = 100) -> None:
    """The commit record names the damaged object, so that only its content can tell."""
    seg = log.segments[5]
    key = log.segment_key(seg)
    await flip(store, key, at)
    info = await store.head(key)
    assert info is not None
    await log.replace_segment(seg, replace(seg, etag=info.etag))


async def wrong_count(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await log.replace_segment(log.segments[5], replace(log.segments[5], records=1))


async def hole(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    head = replace(log.head, tail=(log.head.tail[0], *log.head.tail[2:]))
    await etcd.put(log._keyspace.head(log.topic.topic_id, 0), encode_head(head))


async def manifest_lists_more(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    """Than the reference to it says."""
    await store.put(log.meta.chunks[0].key, [encode_manifest(Manifest(segments=tuple(log.segments[:3])))])


async def end_too_far(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    head = replace(log.head, next=log.head.next + 1)
    await etcd.put(log._keyspace.head(log.topic.topic_id, 0), encode_head(head))


async def epochs_fall(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await log.replace_segment(log.segments[5], replace(log.segments[5], epoch=1))


async def no_topic(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await etcd.delete(log._keyspace.topic("orders"))


async def lose_head(log: LogBuilder, store: MemoryStore, etcd: EtcdClient) -> None:
    await etcd.delete(log._keyspace.head(log.topic.topic_id, 0))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lose_head, "and no head in etcd"),
        (lose_segment, "committed and not in the store"),
        (lose_index, "committed and not in the store"),
        (replace_object, "is not the object that was committed"),
        (corrupt_and_commit, "checksum"),
        (wrong_count, "records: the commit record says 1"),
        (hole, "does not follow"),
        (manifest_lists_more, "does not follow"),
        (end_too_far, "the high watermark is"),
        (epochs_fall, "epochs fall"),
        (no_topic, "no topic record"),
    ],
)
async def test_damage_is_found_and_named(
    etcd: EtcdClient, keyspace: Keyspace, damage: Damage, sentence: str
) -> None:
    store = MemoryStore()
    await damage(await build(etcd, keyspace, store), store, etcd)
    verdict = await check(etcd, keyspace, store)
    assert any(sentence in problem.what for problem in verdict.problems), verdict.problems
    assert not verdict.clean


async def test_an_uncommitted_upload_is_an_orphan_and_no_problem(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    await store.put(keyspace.segment_key("orders", 0, log.next), [b"torn"])
    verdict = await check(etcd, keyspace, store)
    assert verdict.clean
    assert verdict.orphans == [keyspace.segment_key("orders", 0, log.next)]


async def test_segments_below_the_log_start_may_be_gone(etcd: EtcdClient, keyspace: Keyspace) -> None:
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    await log.retain_from(log.segments[2].base)
    verdict = await check(etcd, keyspace, store)
    assert verdict.problems == []
    assert (verdict.segments, verdict.deleted, verdict.deleted_stored) == (4, 2, 0)
    assert len(verdict.orphans) == 0


async def test_deleted_records_that_are_still_stored_are_counted_and_not_read(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """The log starts within the fifth segment, far behind the manifests' end: a deletion may put it anywhere."""
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    await log.retain_from(log.segments[4].base + 7, delete=False)
    await flip(store, log.segment_key(log.segments[3]), 100)
    verdict = await check(etcd, keyspace, store)
    assert verdict.problems == []
    assert (verdict.segments, verdict.deleted, verdict.deleted_stored) == (2, 4, 4)
    assert verdict.orphans == []
    await lose_segment_at(log, store, 4)
    assert not (await check(etcd, keyspace, store)).clean, "its last records are visible"


async def test_a_log_that_was_swept_is_clean(etcd: EtcdClient, keyspace: Keyspace) -> None:
    """The one chunk there was is gone, and the objects below the start."""
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    await log.retain_from(log.segments[3].base + 1)
    await log.sweep(log.segments[3].base)
    verdict = await check(etcd, keyspace, store)
    assert verdict.problems == []
    assert (verdict.segments, verdict.deleted, log.meta.chunks) == (3, 1, ())


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"log_start": 0}, "the first segment listed at 540"),
        ({"swept": 1_000}, "swept up to 1000"),
        ({"epochs_key": "nowhere"}, "nowhere"),
    ],
)
async def test_sweeping_too_much_is_a_problem(
    etcd: EtcdClient, keyspace: Keyspace, damage: dict[str, object], sentence: str
) -> None:
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    await log.retain_from(log.segments[3].base)
    await log.sweep(log.segments[3].base)
    meta = replace(log.meta, **damage)  # type: ignore[arg-type]
    await etcd.put(keyspace.meta(log.topic.topic_id, 0), encode_meta(meta))
    problems = (await check(etcd, keyspace, store)).problems
    assert any(sentence in problem.what for problem in problems), problems


@pytest.mark.parametrize("beyond", [1, -1])
async def test_a_log_start_outside_of_the_log_is_a_problem(
    etcd: EtcdClient, keyspace: Keyspace, beyond: int
) -> None:
    store = MemoryStore()
    log = await build(etcd, keyspace, store)
    await log.retain_from(log.next + beyond if beyond > 0 else beyond, delete=False)
    assert any("log start" in problem.what for problem in (await check(etcd, keyspace, store)).problems)


async def lose_segment_at(log: LogBuilder, store: MemoryStore, at: int) -> None:
    await store.delete(log.segment_key(log.segments[at]))


@pytest.mark.parametrize("of_this_topic", [False, True])
async def test_objects_without_a_head_are_a_problem_only_if_the_present_topic_made_them(
    etcd: EtcdClient, keyspace: Keyspace, of_this_topic: bool
) -> None:
    """A deleted topic of the same name may leave objects, to which no head belongs."""
    store = MemoryStore()
    topic = await create_topic(etcd, keyspace, "orders")
    log = LogBuilder(
        etcd, keyspace, store, topic if of_this_topic else replace(topic, topic_id=TopicId(b"x" * 16))
    )
    await log.upload([build_batch(records(3))])
    verdict = await check(etcd, keyspace, store)
    assert verdict.clean is not of_this_topic
    assert len(verdict.orphans) == 2


async def test_a_damaged_topic_is_named_once_and_the_others_are_checked(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    store = MemoryStore()
    await build(etcd, keyspace, store)
    await etcd.put(keyspace.topic("bad"), b"\xff")
    verdict = await check(etcd, keyspace, store)
    assert (verdict.topics, verdict.segments) == (1, 6)
    assert [problem.where for problem in verdict.problems] == [keyspace.topic("bad").decode()]
