"""Topics and heads from real objects and a real etcd that is empty or old. After it, fsck is clean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from kafscale.log.heads import Aborted, encode_head
from kafscale.log.places import place_of
from kafscale.log.segment import BatchInfo, build_segment, verify_segment
from kafscale.log.transactions import stored_batches
from kafscale.operations.rollforward import run as run_module
from kafscale.operations.rollforward.plan import EPOCHS_SKIPPED
from kafscale.operations.rollforward.report import rows, warnings
from kafscale.operations.rollforward.segments import Rejected, is_settled, seg_of_stored
from kafscale.operations.sentences import Trouble
from kafscale.storage.coordination import decode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import META_ATTEMPT, META_TOPIC_ID, Keyspace
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    IfMatch,
    MemoryStore,
    Metadata,
    ObjectInfo,
)
from kafscale.storage.recovery_keys import deletion_mark
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import TopicState, decode_epoch_floor, encode_topic
from kafscale.storage.transactions import PendingOffsets, encode_pending
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.markers import Marker
from kafscale.wire.records import build_batch

from .roll_forward_world import NOW_MS, World, filled, more

COPY = "copy-"


class Replica(MemoryStore):
    """The same objects with other etags."""

    def __init__(self, original: MemoryStore) -> None:
        super().__init__()
        self.__dict__.update(original.__dict__)

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        assert not isinstance(condition, IfMatch)
        return COPY + await super().put(key, body, condition=condition, metadata=metadata)

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        match = None if if_match is None else if_match.removeprefix(COPY) if COPY in if_match else "another"
        return await super().get(key, if_match=match, start=start, end=end)

    async def head(self, key: str) -> ObjectInfo | None:
        info = await super().head(key)
        return None if info is None else replace(info, etag=COPY + info.etag)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, start_after=start_after):
            yield replace(info, etag=COPY + info.etag)


@pytest.fixture
def world(etcd: EtcdClient, keyspace: Keyspace) -> World:
    return World(etcd, keyspace, MemoryStore())


async def test_an_empty_etcd_is_filled_from_the_bucket(world: World) -> None:
    log = await filled(world)
    await world.lose()
    (warning,) = await world.rolled()
    assert warning.startswith("TOPIC orders is created with 1 partitions")
    topic, head = await world.topic("orders"), await world.head(log)
    assert topic is not None
    assert (topic.topic_id, topic.configs) == (log.topic.topic_id, {"retention.ms": "-1"})
    assert (head.next, head.lso, head.owner, head.topic) == (log.next, log.next, "", "orders")
    assert head.epoch == 1 + EPOCHS_SKIPPED
    assert [seg.base for seg in head.tail if seg.is_slice] == [56, 60]
    assert await world.log_start(log) == 0
    owner = await world.etcd.get(world.keys.owner(log.topic.topic_id, 0))
    assert owner is not None
    assert decode_owner(owner.value).epoch == head.epoch


async def test_an_old_etcd_gets_what_was_written_since(world: World) -> None:
    log = await filled(world)
    compaction = world.keys.compaction_pass(log.topic.topic_id, 0)
    await world.etcd.put(compaction, b"of the log as it was")
    saved = await world.saved()
    await more(log)
    await log.claim(3)
    await log.append(records(9))
    await log.settle()
    await log.checkpoint(keep=2)
    await more(log)
    other = await world.log("orders", 1, topic=log.topic)
    await other.append(records(2))
    await world.lose(saved)
    assert await world.rolled() == []
    head = await world.head(log)
    assert (head.next, head.epoch) == (log.next, 3 + EPOCHS_SKIPPED)
    assert await world.etcd.get(compaction) is None
    places = [place_of(world.keys, "orders", 0, seg) for seg in head.tail]
    tail = b"".join([(await place.read(world.store))[32:-16] for place in places])
    assert tail == log.expected(head.tail[0].base)
    assert (await world.head(other)).next == 2


async def test_what_retention_deleted_since_the_snapshot_is_below_the_log_start(world: World) -> None:
    log = await filled(world)
    saved = await world.saved()
    await log.retain_from(34)
    await world.lose(saved)
    assert await world.rolled() == []
    assert await world.log_start(log) == 34
    assert (await world.head(log)).next == log.next


async def test_a_lost_object_leaves_a_gap_that_is_covered(world: World) -> None:
    log = await filled(world)
    lost = log.segments[1]
    for key in (log.segment_key(lost), world.keys.index_key("orders", 0, lost.base)):
        await world.store.delete(key)
    await world.lose()
    found = await world.rolled()
    assert [each for each in found if each.startswith("GAP")] == [
        "GAP orders/0: nothing is stored of offsets 17-33. They were deleted, or they are lost"
    ]
    assert (await world.head(log)).next == log.next
    assert await world.log_start(log) == 0
    (filler,) = [
        info.key
        async for info in world.store.list(world.keys.compacted_prefix(log.topic.topic_id))
        if info.key.endswith(".kfs")
    ]
    verify_segment(await world.store.get(filler))
    await world.lose()  # once more
    await world.rolled()
    topic = await world.topic("orders")
    assert topic is not None
    assert not topic.is_compacted


async def test_objects_with_other_etags_are_read_and_taken(world: World) -> None:
    """A replica of the bucket may have other etags than the commit records name."""
    log = await filled(world)
    saved = await world.saved()
    world.store = Replica(world.store)
    await world.lose(saved)
    assert await world.rolled() == []
    assert (await world.head(log)).next == log.next


async def test_an_etcd_that_is_right_is_fenced_and_keeps_its_values(world: World) -> None:
    log = await filled(world)
    assert await world.rolled() == []
    head = await world.head(log)
    assert replace(head, epoch=1, owner="0/test") == log.head


async def test_a_deleted_topic_does_not_come_back(world: World) -> None:
    log = await filled(world)
    saved = await world.saved()
    await log.remove_objects()
    await world.store.put(deletion_mark(world.keys, log.topic.topic_id, NOW_MS), [b"orders"])
    other = await filled(world, "payments")
    await world.lose(saved)
    found = await world.rolled()
    assert any("TOPIC orders" in each and "was deleted after the snapshot" in each for each in found)
    assert await world.topic("orders") is None
    assert await world.etcd.get(world.keys.head(log.topic.topic_id, 0)) is None
    floor = await world.etcd.get(world.keys.epoch_floor("orders"))
    assert floor is not None
    assert decode_epoch_floor(floor.value) > EPOCHS_SKIPPED
    assert (await world.head(other)).next == other.next


async def test_a_topic_that_was_created_again_has_the_new_id(world: World) -> None:
    log = await filled(world)
    saved = await world.saved()
    await log.remove_objects()
    again = await create_topic(world.etcd, world.keys, "orders", epoch_floor=1)
    new = await world.log("orders", topic=again, epoch=2)
    await new.append(records(3))
    await world.lose(saved)
    await world.rolled()
    topic = await world.topic("orders")
    assert topic is not None
    assert topic.topic_id == again.topic_id
    assert topic.epoch_floor > EPOCHS_SKIPPED
    assert (await world.head(new)).next == 3
    assert await world.etcd.get(world.keys.head(log.topic.topic_id, 0)) is None


async def test_leftovers_of_a_deleted_topic_save_an_epoch_for_the_next_one(world: World) -> None:
    log = await filled(world)
    await world.store.put(deletion_mark(world.keys, log.topic.topic_id, NOW_MS), [b"orders"])
    await world.lose()
    await world.rolled()
    assert await world.topic("orders") is None
    floor = await world.etcd.get(world.keys.epoch_floor("orders"))
    assert floor is not None
    assert decode_epoch_floor(floor.value) == 1 + EPOCHS_SKIPPED


async def test_a_topic_that_is_only_in_bundles_needs_its_name(world: World) -> None:
    log = await world.log("orders")
    await more(log)
    await world.lose()
    topic_id = log.topic.topic_id
    seen = await world.look()
    (warning,) = warnings(seen.metadata, seen.bucket, seen.plan)
    assert f"--topic-name {topic_id.hex()}=NAME" in warning
    assert rows(seen.metadata, seen.plan) == []
    await world.rolled(orders=topic_id)
    assert (await world.head(log)).next == 10


async def test_a_given_name_replaces_no_topic(world: World) -> None:
    await filled(world)
    log = await world.log("lost")
    await more(log)
    await world.lose()
    with pytest.raises(Trouble, match="the name another topic"):
        await world.look(orders=log.topic.topic_id)


async def test_a_deletion_in_progress_is_left_to_the_admin(world: World) -> None:
    log = await filled(world)
    doomed = replace(log.topic, state=TopicState.DELETING)
    await world.etcd.put(world.keys.topic("orders"), encode_topic(doomed))
    seen = await world.look()
    assert rows(seen.metadata, seen.plan) == []


async def test_objects_that_no_commit_can_have_named_are_not_used(world: World) -> None:
    log = await filled(world)
    await log.settle()
    end = log.next
    await log.upload([build_batch(records(8))])  # and then its index is gone
    await world.store.delete(world.keys.index_key("orders", 0, end))
    strange = world.keys.segment_key("orders", 0, end + 8)
    await world.store.put(strange, [b"of another program"])
    torn = world.keys.segment_key("orders", 0, end + 9)
    ours = {META_TOPIC_ID: log.topic.topic_id.hex()}
    for key in (torn, world.keys.index_key("orders", 0, end + 9)):
        await world.store.put(key, [b"torn"], metadata=ours)
    other = await world.log("orders", 1, topic=log.topic, epoch=4)  # has committed nothing
    await other.upload([build_batch(records(2))])
    await world.store.delete(world.keys.index_key("orders", 1, 0))
    await world.lose()
    found = [each for each in await world.rolled() if each.startswith("NOT USED")]
    assert [each.rpartition(": ")[2] for each in found[:2]] == [
        "it has no index of the same attempt",
        "another program wrote it",
    ]
    assert len(found) == 4
    assert (await world.head(log)).next == end
    assert (await world.head(other)).next == 0


async def test_an_index_of_another_attempt_shows_that_a_segment_was_not_committed(world: World) -> None:
    log = await filled(world)
    await log.settle()
    await log.upload([build_batch(records(8))])
    key = world.keys.segment_key("orders", 0, log.next)
    ours = {META_TOPIC_ID: log.topic.topic_id.hex(), META_ATTEMPT: "0a"}
    await world.store.put(key, [await world.store.get(key)], metadata=ours)
    await world.lose()
    found = await world.rolled()
    assert any(each.endswith("it has no index of the same attempt") for each in found)
    assert (await world.head(log)).next == log.next


def test_random_bits_in_the_header_are_of_a_settled_segment() -> None:
    batch = build_batch(records(3))
    for mark in (0, 7):
        built = build_segment(0, [BatchInfo(0, 2, len(batch), 3)], [batch], 1, mark)
        data = b"".join(built.body)
        assert is_settled(data) is bool(mark)
        seg = seg_of_stored(0, data, "etag", built.index, "index etag")
        assert (seg.base, seg.end, seg.records, seg.crc32c) == (0, 3, 3, built.crc32c)
        with pytest.raises(Rejected, match="base offset 0"):
            seg_of_stored(1, data, "etag", built.index, "index etag")


async def test_a_process_that_runs_all_the_same_loses_nothing(world: World) -> None:
    log = await filled(world)
    saved = await world.saved()
    await more(log)
    await world.lose(saved)
    seen = await world.look()
    claimed = replace(log.head, epoch=2)
    await world.etcd.put(world.keys.head(log.topic.topic_id, 0), encode_head(claimed))
    with pytest.raises(Trouble, match="orders/0 changed in etcd meanwhile"):
        await world.write(seen)
    assert await world.head(log) == claimed


async def test_a_cluster_that_runs_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "LOOKS", 2)
    monkeypatch.setattr(run_module, "LOOK_AGAIN_S", 0.01)
    await world.etcd.put(world.keys.live("produce", 1, "boot"), b"")
    with pytest.raises(Trouble, match="stop the cluster first: in etcd are registered produce"):
        await world.look()


async def test_a_wrong_bucket_is_refused(world: World) -> None:
    await filled(world)
    world.store = MemoryStore()
    with pytest.raises(Trouble, match="the bucket has none"):
        await world.look()


async def test_a_value_that_cannot_be_read_is_left(world: World) -> None:
    log = await filled(world)
    key = world.keys.head(log.topic.topic_id, 0)
    await world.etcd.put(key, b"\xff")
    seen = await world.look()
    assert seen.plan.partitions == ()
    assert any(each.startswith("UNREADABLE") for each in warnings(seen.metadata, seen.bucket, seen.plan))


@pytest.mark.parametrize("state", ["slices", "segments", "manifest"])
async def test_what_is_made_of_a_log_with_transactions_is_refused_by_versions_without_them(
    world: World, state: str
) -> None:
    log = await world.log("orders")
    log.as_slices = state == "slices"
    await log.append_raw([transactional(7, records(2)), marker(7, commit=True)])
    await log.append(records(3))
    if state == "manifest":
        await log.checkpoint()
    await world.lose()
    seen = await world.look(orders=log.topic.topic_id)
    (plan,) = [each for each in seen.plan.partitions if each.partition == 0]
    assert plan.head is not None
    assert plan.head.transactional
    assert all(manifest.transactional for manifest in plan.manifests.values())


async def test_an_entry_that_was_committed_keeps_what_it_says_of_transactions(world: World) -> None:
    log = await world.log("orders")
    await log.append_raw([transactional(7, records(2)), transactional(8, records(1))])
    await log.append_raw([marker(7, commit=False)])
    await world.rolled()
    head = await world.head(log)
    assert head.tail[:-1] == log.head.tail
    assert (head.open, head.lso, head.transactional) == ((), 5, True)


# -- transactions -----------------------------------------------------------------------------------


ABORTED_BEFORE, COMMITTED, OPEN, OPEN_LATER = 7, 8, 9, 10
STATES = ("slices", "segments", "settled", "manifest", "manifest and slices")


async def with_transactions(world: World, state: str) -> LogBuilder:
    """Offsets 0-1 are aborted at 7, 2-4 committed at 8; 5-6 and 9 are open, of two producers. Between them are records
    of no transaction."""
    log = await world.log("orders")
    log.as_slices = state != "segments"
    await log.append_raw([transactional(ABORTED_BEFORE, records(2)), transactional(COMMITTED, records(3))])
    await log.append_raw([transactional(OPEN, records(2), epoch=4)])
    await log.append_raw([marker(ABORTED_BEFORE, commit=False), marker(COMMITTED, commit=True)])
    if state == "manifest and slices":
        await log.checkpoint()
    await log.append_raw([transactional(OPEN_LATER, records(1)), build_batch(records(2))])
    if state == "settled":
        await log.settle_run(0, len(log.head.tail))
    if state == "manifest":
        await log.checkpoint()
    await log.record_open()
    pending = PendingOffsets(group="app", producer_id=OPEN, epoch=4, number=1, offsets=())
    key = world.keys.pending(slot_of("app"), "app", OPEN)
    await world.etcd.put(key, encode_pending(pending))
    return log


@pytest.mark.parametrize("is_lost", [True, False], ids=["etcd is empty", "etcd is right"])
@pytest.mark.parametrize("state", STATES)
async def test_what_is_open_is_aborted_behind_the_end(world: World, state: str, is_lost: bool) -> None:
    log = await with_transactions(world, state)
    if is_lost:
        await world.lose()
    said = await world.rolled(orders=log.topic.topic_id)
    assert [line for line in said if line.startswith("ABORTED")] == [
        "ABORTED: what 2 producers had open in 1 partition, because nothing shows how it was decided",
        "ABORTED orders/0: transactions of producer 9 from offset 5 on, producer 10 from offset 9 on",
    ]
    head = await world.head(log)
    assert (head.next, head.lso, head.open) == (14, 14, ())
    listed = await world.entries(log)
    assert [each for seg in listed for each in seg.aborted] == [
        Aborted(producer_id=ABORTED_BEFORE, first=0, last=7),
        Aborted(producer_id=OPEN, first=5, last=12),
        Aborted(producer_id=OPEN_LATER, first=9, last=13),
    ]
    markers = await place_of(world.keys, "orders", 0, listed[-1]).read(world.store)
    assert [
        (header.producer_id, header.producer_epoch, found) for header, found in stored_batches(markers)
    ] == [
        (OPEN, 4, Marker(False, 0)),
        (OPEN_LATER, 0, Marker(False, 0)),
    ]
    assert listed[-1].epoch == head.epoch - EPOCHS_SKIPPED == 1 + EPOCHS_SKIPPED


async def test_every_transactional_id_and_every_pending_offset_is_forgotten(world: World) -> None:
    await with_transactions(world, "segments")
    seen = await world.look()
    assert [row["change"] for row in rows(seen.metadata, seen.plan)][:2] == [
        "2 transactional ids forgotten",
        "1 transaction with offsets forgotten",
    ]
    await world.rolled()
    for prefix in (world.keys.transactions_prefix(), world.keys.pendings_prefix()):
        assert (await world.etcd.prefix(prefix)).kvs == ()


async def test_an_old_etcd_does_not_open_what_was_ended_since(world: World) -> None:
    log = await world.log("orders")
    await log.append_raw([transactional(7, records(2)), transactional(8, records(2))])
    await log.record_open()
    saved = await world.saved()
    await log.append_raw([marker(7, commit=True)])
    await log.append_raw([marker(8, commit=False), build_batch(records(1))])
    after = log.head
    await world.lose(saved)
    assert await world.rolled() == []
    head = await world.head(log)
    assert (head.tail, head.next, head.lso, head.open) == (after.tail, 7, 7, ())


async def test_only_slices_with_transactions_are_read(world: World) -> None:
    log = await world.log("orders")
    await log.append_raw([transactional(7, records(2))])
    await more(log)
    log.as_slices = True
    await log.append_raw([marker(7, commit=True)])
    await more(log)
    await world.lose()
    seen = await world.look(orders=log.topic.topic_id)
    (plan,) = [each for each in seen.plan.partitions if each.partition == 0]
    assert sorted(seen.bucket.found[log.topic.topic_id, 0].events) == [0, 12]
    assert plan.aborted == ()


async def test_a_transaction_whose_beginning_retention_deleted_is_listed_from_before_the_log(
    world: World,
) -> None:
    log = await world.log("orders")
    await log.append_raw([transactional(7, records(4))])
    await log.append_raw([build_batch(records(2))])
    await log.append_raw([marker(7, commit=False), build_batch(records(1))])
    await log.retain_from(4)
    await world.lose()
    await world.rolled()
    assert [seg.aborted for seg in (await world.head(log)).tail] == [
        (),
        (Aborted(producer_id=7, first=3, last=6),),
    ]


async def test_a_marker_that_is_lost_ends_nothing(world: World) -> None:
    """The outcome was in the lost segment only, so the records before it are not shown as committed."""
    log = await world.log("orders")
    await log.append_raw([transactional(7, records(2))])
    lost = await log.append_raw([marker(7, commit=True)])
    await log.append_raw([build_batch(records(3))])
    await log.checkpoint()
    for key in (log.segment_key(lost), world.keys.index_key("orders", 0, lost.base)):
        await world.store.delete(key)
    said = await world.rolled()
    assert "ABORTED orders/0: transactions of producer 7 from offset 0 on" in said
    assert [seg.unstable for seg in await world.entries(log)] == [2, 3, 6, 0]


async def test_a_segment_that_cannot_be_read_is_told_and_the_rest_goes_on(world: World) -> None:
    log = await world.log("orders")
    log.as_slices = True
    seg = await log.append_raw([transactional(7, records(2))])
    key = log.segment_key(seg)
    data = bytearray(await world.store.get(key))
    data[seg.position + seg.size // 2] ^= 1
    await world.store.put(key, [bytes(data)])
    await world.lose()
    seen = await world.look(orders=log.topic.topic_id)
    assert any(line.startswith(f"NOT READ {key}") for line in warnings(seen.metadata, seen.bucket, seen.plan))
    plan = seen.plan.partitions[0]
    assert plan.head is not None
    assert (plan.head.next, plan.aborted) == (2, ())


async def test_abort_markers_alone_do_not_make_a_topic_compacted(world: World) -> None:
    log = await with_transactions(world, "segments")
    await world.rolled()
    log.head = replace(await world.head(log), owner="0/test")
    await log.checkpoint()
    await world.lose()
    await world.rolled()
    topic = await world.topic("orders")
    assert topic is not None
    assert not topic.is_compacted
    assert (await world.head(log)).next == 14
