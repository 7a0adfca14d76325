"""The sweep deletes a bundle when no head names it and none ever will, and only then."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.retention.bundles import BUNDLES_MAX, Sweep, SweepReport
from kafscale.log.bundle import Slice, Standings, build_bundle, new_bundle_id
from kafscale.log.heads import EpochStart, Head, Seg, decode_head, encode_head
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.storage.coordination import decode_owner
from kafscale.storage.etcd.client import Delete, EtcdClient, Range, RangeResult, Txn
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack, witnesses_prefix
from kafscale.storage.keys import META_CLUSTER, Keyspace, TopicId, prefix_end
from kafscale.storage.objects import DELETES_MAX, Doomed, MemoryStore, Outcome, StoreUnavailable
from kafscale.storage.recovery_keys import deletion_mark
from kafscale.store.v1 import store_pb2 as pb
from kafscale.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
OLD_MS = NOW_MS - 7_200_000
MIN_AGE_MS = 1_800_000
TOPIC = TopicId(b"t" * 16)
CLUSTER = "the cluster"
OWNER = "3/boot"


class Bucket(MemoryStore):
    """May fail deletions. `at_read` comes before the first read of a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.at_read: Callable[[], Awaitable[None]] | None = None

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        if self.at_read is not None:
            at_read, self.at_read = self.at_read, None
            await at_read()
        return await super().get(key, if_match=if_match, start=start, end=end)

    async def delete_many(self, doomed: list[Doomed]) -> list[Outcome]:  # type: ignore[override]
        if self.fails:
            return [StoreUnavailable(each.key, "503") for each in doomed]
        return await super().delete_many(doomed)


class World:
    """Slices of two offsets, [base, base + 2)."""

    def __init__(self, lake: Lake, store: Bucket) -> None:
        self.lake = lake
        self.store = store

    async def bundle(
        self, *slices: tuple[int, int, int], made_ms: int = OLD_MS, cluster: str = CLUSTER
    ) -> str:
        """Slices as (partition, epoch, base). Returns the key."""
        built = build_bundle(
            new_bundle_id(made_ms, os.urandom(10)), [piece(*each) for each in slices], made_ms
        )
        key = self.lake.keys.bundle_key(built.id)
        await self.store.put(key, built.body, metadata={META_CLUSTER: cluster})
        return key

    async def head(
        self,
        partition: int,
        *,
        epoch: int,
        end: int,
        names: str = "",
        owner: str = OWNER,
        starts: tuple[EpochStart, ...] = (),
    ) -> None:
        tail: tuple[Seg, ...] = ()
        if names:
            bundle_id = self.lake.keys.parse_bundle(names)
            assert bundle_id is not None
            tail = (seg(end - 2, bundle_id),)
        head = Head(epoch=epoch, topic="t", owner=owner, next=end, lso=end, tail=tail, epochs=starts)
        await self.lake.etcd.put(self.lake.keys.head(TOPIC, partition), encode_head(head))

    async def register(self, owner: str = OWNER) -> None:
        node_id, _, boot_id = owner.partition("/")
        await self.lake.etcd.put(self.lake.keys.live("produce", int(node_id), boot_id), b"here")

    async def sweep(self, keep_ms: int = 0) -> SweepReport:
        run = Sweep(self.lake, min_age_ms=MIN_AGE_MS, keep_ms=keep_ms, grace_s=0, now_ms=lambda: NOW_MS)
        return await run.run()

    def left(self) -> set[str]:
        prefix = self.lake.keys.bundles_prefix()
        return {key for key in self.store._objects if key.startswith(prefix)}


def piece(partition: int, epoch: int, base: int) -> Slice:
    batch = build_batch([Record(timestamp=1, value=b"v")] * 2, base_offset=base)
    segment = build_segment(base, [BatchInfo(base, base + 1, len(batch), 2)], [batch], 1)
    return Slice(topic_id=TOPIC, partition=partition, leader_epoch=epoch, segment=segment, min_ts=1, max_ts=1)


def seg(base: int, bundle_id: bytes) -> Seg:
    return Seg(
        base=base, last_delta=1, size=100, etag="e", crc32c=0, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=2, batches=1, created_ms=0, bundle=bundle_id, position=32,
    )  # fmt: skip


@pytest.fixture
async def world(etcd: EtcdClient, keyspace: Keyspace) -> World:
    store = Bucket()
    await etcd.put(keyspace.cluster(), pb.Cluster(schema=1, cluster_id=CLUSTER).SerializeToString())
    return World(Lake(etcd, keyspace, store), store)


async def test_a_bundle_goes_when_nothing_names_it_and_all_its_slices_are_dead(world: World) -> None:
    dead = await world.bundle((0, 1, 0), (1, 4, 10), (9, 1, 0))  # partition 9 was deleted
    named = await world.bundle((0, 1, 2), (1, 4, 10))
    young = await world.bundle((0, 1, 0), made_ms=NOW_MS - MIN_AGE_MS)
    await world.head(0, epoch=1, end=4, names=named)  # it has replaced the first slice
    await world.head(1, epoch=5, end=8)  # a new owner, whose log ended before it
    report = await world.sweep()
    assert dead not in world.left()
    assert world.left() == {named, young}
    assert (report.bundles, report.named, report.pinned, report.deleted) == (2, 1, 0, 1)


async def test_a_slice_that_its_owner_may_still_commit_keeps_the_bundle(world: World) -> None:
    kept = await world.bundle((0, 1, 0), (1, 1, 0))
    await world.head(0, epoch=1, end=2)
    await world.head(1, epoch=1, end=1)  # the slice ends at 2
    await world.register()
    for _ in range(2):
        report = await world.sweep()
        assert (report.pinned, report.oldest_pinned_ms, report.bumped) == (1, OLD_MS, 0)
        assert world.left() == {kept}
    await world.head(1, epoch=1, end=2)
    assert (await world.sweep()).deleted == 1


@pytest.mark.parametrize("owner", [OWNER, ""])
async def test_where_the_owner_is_gone_the_epoch_rises_and_the_bundle_goes(world: World, owner: str) -> None:
    await world.bundle((0, 1, 0), (1, 1, 0))
    await world.bundle((1, 1, 2))
    await world.head(0, epoch=1, end=2, owner=owner)
    await world.head(1, epoch=1, end=0, owner=owner)
    report = await world.sweep()
    assert (report.bumped, report.deleted, report.pinned) == (1, 2, 0)
    keys = world.lake.keys
    kv = await world.lake.etcd.get(keys.head(TOPIC, 1))
    assert kv is not None
    head = decode_head(kv.value)
    assert (head.epoch, head.owner, head.next) == (2, "", 0)
    record = await world.lake.etcd.get(keys.owner(TOPIC, 1))
    assert record is not None
    assert (decode_owner(record.value).epoch, decode_owner(record.value).owner) == (2, "")


async def test_a_slice_that_was_committed_before_its_owner_died_keeps_the_bundle(world: World) -> None:
    """It is committed after the sweep has read the heads, and before it raises the epoch."""
    kept = await world.bundle((0, 1, 0))
    await world.head(0, epoch=1, end=0)

    async def commits_and_dies() -> None:
        await world.head(0, epoch=1, end=2, names=kept)

    world.store.at_read = commits_and_dies
    report = await world.sweep()
    assert (report.bumped, report.named, report.pinned, report.deleted) == (1, 1, 0, 0)
    assert world.left() == {kept}


@pytest.mark.parametrize("cluster", ["another", ""])
async def test_records_of_another_cluster_are_left(world: World, cluster: str) -> None:
    """An empty or wrong etcd has no head of them either."""
    kept = await world.bundle((0, 1, 0), cluster=cluster)
    report = await world.sweep()
    assert world.left() == {kept}
    assert list(report.unreadable) == [kept]


async def test_without_a_cluster_record_only_what_heads_say_counts(world: World) -> None:
    await world.lake.etcd.delete(world.lake.keys.cluster())
    unknown = await world.bundle((0, 1, 0), cluster="")
    await world.bundle((1, 1, 0))
    await world.head(1, epoch=1, end=2)
    assert (await world.sweep()).deleted == 1
    assert world.left() == {unknown}


async def test_a_head_that_cannot_be_read_keeps_its_bundles(world: World) -> None:
    kept = await world.bundle((0, 1, 0), (1, 1, 0))
    await world.bundle((1, 1, 0))
    await world.lake.etcd.put(world.lake.keys.head(TOPIC, 0), pb.Head(schema=9).SerializeToString())
    await world.head(1, epoch=1, end=2)
    report = await world.sweep()
    assert world.left() == {kept}
    assert list(report.unreadable) == [f"{TOPIC.hex()}/0"]


async def test_a_damaged_bundle_is_left_and_reported(world: World) -> None:
    kept = await world.bundle((0, 1, 0))
    data = bytearray(await world.store.get(kept))
    data[-20] ^= 1
    await world.store.put(kept, [bytes(data)], metadata={META_CLUSTER: CLUSTER})
    report = await world.sweep()
    assert world.left() == {kept}
    assert list(report.unreadable) == [kept]


async def test_a_directory_of_any_length_is_read(world: World) -> None:
    await world.bundle(*((partition, 1, 0) for partition in range(300)))
    assert (await world.sweep()).deleted == 1


async def test_deletions_that_fail_are_no_progress(world: World) -> None:
    await world.bundle((0, 1, 0))
    world.store.fails = True
    report = await world.sweep()
    assert (report.failed, report.deleted, report.stands_still) == (1, 0, True)
    world.store.fails = False
    assert not (await world.sweep()).stands_still


async def test_more_bundles_than_one_run_takes_go_in_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert BUNDLES_MAX > DELETES_MAX
    monkeypatch.setattr("kafscale.lake.retention.bundles.BUNDLES_MAX", 2)
    for n in range(3):
        await world.bundle((n, 1, 0), made_ms=OLD_MS + n)
    assert [(await world.sweep()).deleted for _ in range(3)] == [2, 1, 0]


async def test_an_owner_whose_epoch_was_raised_commits_nothing_more(world: World) -> None:
    """It was only silent for long: its compare-and-swap names a revision of before."""
    await world.bundle((0, 1, 0))
    await world.head(0, epoch=1, end=0)
    key = world.lake.keys.head(TOPIC, 0)
    before = await world.lake.etcd.get(key)
    assert before is not None
    await world.sweep()
    after = await world.lake.etcd.get(key)
    assert after is not None
    assert after.mod_revision > before.mod_revision
    assert decode_head(after.value) == replace(decode_head(before.value), epoch=2, owner="")


# --- what was never committed, as far as the heads say -------------------------------------------------


DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("epoch", [1, 2], ids=["its epoch was raised", "a later one begins below"])
async def test_a_slice_that_was_never_committed_keeps_its_bundle_for_a_day(world: World, epoch: int) -> None:
    """It may be of an etcd that was restored: then it was committed, and a roll-forward finds it."""
    old = await world.bundle((0, 1, 4), made_ms=NOW_MS - DAY_MS)
    kept = await world.bundle((0, 1, 4), made_ms=NOW_MS - DAY_MS + 1)
    settled = await world.bundle((0, 1, 0))
    starts = () if epoch == 1 else (EpochStart(epoch=1, start=0), EpochStart(epoch=2, start=4))
    await world.head(0, epoch=epoch, end=4 if epoch == 1 else 8, starts=starts)
    report = await world.sweep(keep_ms=DAY_MS)
    assert world.left() == {kept}
    assert (report.kept, report.deleted, report.pinned) == (1, 2, 0)
    assert {old, settled}.isdisjoint(world.left())


async def test_a_topic_counts_as_deleted_by_its_mark_or_after_a_day(world: World) -> None:
    await world.bundle((0, 1, 0), made_ms=NOW_MS - DAY_MS)
    young = await world.bundle((0, 1, 0))
    assert (await world.sweep(keep_ms=DAY_MS)).kept == 1
    assert world.left() == {young}
    await world.store.put(deletion_mark(world.lake.keys, TopicId(b"x" * 16), NOW_MS), [b"x"])
    assert (await world.sweep(keep_ms=DAY_MS)).deleted == 0
    await world.store.put(deletion_mark(world.lake.keys, TOPIC, NOW_MS), [b"t"])
    assert (await world.sweep(keep_ms=DAY_MS)).deleted == 1


async def test_heads_are_read_after_the_bundles_are_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition is new, and its owner's clock is half an hour behind: the bundle that it stores looks old."""
    await world.bundle((1, 1, 0))
    await world.head(1, epoch=1, end=2)
    read = Sweep._read_heads
    new: list[str] = []

    async def read_and_then_a_new_partition(self: Sweep) -> Standings:
        heads = await read(self)
        new.append(await world.bundle((0, 1, 0)))
        await world.head(0, epoch=1, end=2, names=new[0])
        return heads

    monkeypatch.setattr(Sweep, "_read_heads", read_and_then_a_new_partition)
    assert (await world.sweep()).deleted == 1
    assert world.left() == set(new)


async def test_what_can_never_go_does_not_hide_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.lake.retention.bundles.BUNDLES_MAX", 2)
    foreign = {await world.bundle((n, 1, 0), made_ms=OLD_MS + n, cluster="another") for n in range(3)}
    for n in range(3, 6):
        await world.bundle((n, 1, 0), made_ms=OLD_MS + n)
    looks = [await world.sweep() for _ in range(4)]
    assert [(look.bundles, look.deleted) for look in looks] == [(2, 0), (2, 1), (2, 2), (2, 0)]
    assert world.left() == foreign, "the last run has begun again"


# --- an etcd that went back ----------------------------------------------------------------------------


async def wiped(world: World, *, but: bytes = b"") -> None:
    keys = [kv.key for kv in (await world.lake.etcd.prefix(world.lake.keys.root())).kvs]
    await world.lake.etcd.txn(Txn(success=tuple(Delete(key) for key in keys if key != but)))


async def test_an_etcd_that_lost_its_data_costs_no_bundle(world: World) -> None:
    kept = await world.bundle((0, 1, 0))
    await world.head(0, epoch=1, end=2, names=kept)
    await world.sweep()
    await wiped(world, but=world.lake.keys.cluster())  # as an older state of the same cluster
    with pytest.raises(WentBack):
        await world.sweep()
    assert world.left() == {kept}


async def test_nothing_is_deleted_if_etcd_goes_back_while_readers_have_their_grace(world: World) -> None:
    kept = await world.bundle((0, 1, 0))
    await world.head(0, epoch=1, end=2)
    world.store.at_read = partial(wiped, world)  # after the heads were read
    with pytest.raises(WentBack):
        await world.sweep()
    assert world.left() == {kept}


async def test_no_epoch_rises_in_an_etcd_that_went_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.bundle((0, 1, 0))
    await world.head(0, epoch=1, end=0)
    key = world.lake.keys.head(TOPIC, 0)
    before = await world.lake.etcd.get(key)
    proven = History.proven

    async def proven_before(self: History, reads: Sequence[Range]) -> tuple[RangeResult, ...]:
        found = await proven(self, reads)
        if any(read.key == key for read in reads):  # it is read to be raised
            prefix = witnesses_prefix(world.lake.keys)
            await world.lake.etcd.txn(Txn(success=(Delete(prefix, prefix_end(prefix)),)))
        return found

    monkeypatch.setattr(History, "proven", proven_before)
    assert (await world.sweep()).bumped == 0
    assert await world.lake.etcd.get(key) == before


async def test_a_page_of_heads_comes_with_the_proof_of_its_history(world: World) -> None:
    kept = await world.bundle((0, 1, 0))
    await world.head(0, epoch=1, end=2, names=kept)
    history = world.lake.etcd_history()
    await history.verify()
    prefix = witnesses_prefix(world.lake.keys)
    await world.lake.etcd.txn(Txn(success=(Delete(prefix, prefix_end(prefix)),)))
    with pytest.raises(WentBack):
        await anext(history.each(world.lake.keys.heads_prefix(), page_keys=1))
