"""Retention killed before and after every single call, and run again: what may be read is there, all else is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.retention.apply import Report, Retention
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.plan import Rule, plan
from kafscale.lake.retention.report import plan_lake
from kafscale.log.heads import Meta, decode_head, decode_meta, encode_meta
from kafscale.log.manifests import decode_manifest
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import TopicState, encode_topic
from kafscale.testkit.logbuilder import LogBuilder, records

from .shop import Death, Died, Shop

NOW = 100_000
KEPT_MS = 50_000
PER_SEGMENT = 5
FOREVER_S = 20.0


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def grow(log: LogBuilder, count: int, *, step_ms: int = 10_000, from_ms: int = 0) -> None:
    """Segments `step_ms` apart, the newest of the last at `from_ms + count * step_ms`."""
    for number in range(count):
        newest = from_ms + (number + 1) * step_ms
        await log.append(records(PER_SEGMENT, timestamp=newest - PER_SEGMENT + 1))


async def build(shop: Shop) -> None:
    """A log for each way to lose records, and two that lose none."""
    timed = await shop.topic("timed", retention_ms=str(KEPT_MS))
    await grow(timed, 3)  # three chunks: one goes, one in part, one stays; then a tail
    await timed.checkpoint()
    await timed.claim(4)
    await grow(timed, 3, from_ms=30_000)
    await timed.checkpoint()
    await grow(timed, 3, from_ms=60_000)
    await timed.checkpoint()
    await grow(timed, 2, from_ms=90_000)
    sized = await shop.topic("sized", retention_ms="-1", retention_bytes="700")
    await grow(sized, 5)
    await sized.checkpoint(keep=2)
    emptied = await shop.topic("emptied", retention_ms="1000")
    await grow(emptied, 3, step_ms=1_000)
    await emptied.checkpoint(keep=1)
    cut = await shop.topic("cut", retention_ms="-1")
    await grow(cut, 4)
    await cut.checkpoint(keep=1)
    await cut.retain_from(2 * PER_SEGMENT + 2, delete=False)
    await grow(await shop.topic("compacted", cleanup_policy="compact", retention_ms="1"), 2)
    await grow(await shop.topic("kept", retention_ms="-1"), 2)


def oracle(log: LogBuilder) -> int:
    """The log start as Kafka's loop over segments gives it (UnifiedLog.deleteOldSegments)."""
    topic, left = log.topic, list(log.segments)
    start = log.meta.log_start
    if "delete" in topic.cleanup_policy:
        excess = sum(seg.size for seg in left if seg.end > start) - topic.retention_bytes
        left = [seg for seg in left if seg.end > start]
        while topic.retention_bytes >= 0 and left and excess - left[0].size >= 0:
            excess -= left[0].size
            start = left.pop(0).end
        while topic.retention_ms >= 0 and left and NOW - left[0].max_ts > topic.retention_ms:
            start = left.pop(0).end
    return start


def live_objects(shop: Shop) -> set[str]:
    keys = set()
    for log in shop.logs.values():
        for seg in log.segments:
            if seg.end > oracle(log):
                keys.add(log.segment_key(seg))
                keys.add(shop.keys.index_key(log.topic.name, 0, seg.base))
    return keys


async def meta_of(shop: Shop, log: LogBuilder) -> Meta:
    kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
    return Meta() if kv is None else decode_meta(kv.value)


async def named_manifests(shop: Shop) -> set[str]:
    metas = [await meta_of(shop, log) for log in shop.logs.values()]
    return {key for meta in metas for key in (*(c.key for c in meta.chunks), meta.epochs_key) if key}


async def epochs(shop: Shop, log: LogBuilder) -> dict[int, int]:
    """As a reader of the history finds them: what is gone, the manifests, the head."""
    meta = await meta_of(shop, log)
    keys = ([meta.epochs_key] if meta.epochs_key else []) + [chunk.key for chunk in meta.chunks]
    found: dict[int, int] = {}
    for key in keys:
        for start in decode_manifest(await shop.store.get(key)).epochs:
            found.setdefault(start.epoch, start.start)
    kv = await shop.etcd.get(shop.keys.head(log.topic.topic_id, 0))
    assert kv is not None
    for seg in decode_head(kv.value).tail:
        found.setdefault(seg.epoch, seg.base)
    return found


async def run(lake: Lake) -> Report:
    return await Retention(lake, grace_s=0, now_ms=lambda: NOW).run()


async def nothing_live_is_lost(shop: Shop) -> None:
    """Whatever a reader may ask for is there as it was committed, and no log starts too late."""
    assert live_objects(shop) <= shop.store.names()
    for log in await read_lake(shop.lake()):
        builder = shop.logs[log.topic.name]
        assert log.start <= oracle(builder)
        assert log.end == builder.next
        listed = [seg for seg in log.segments if seg.end > log.start]
        assert listed == [seg for seg in builder.segments if seg.end > log.start], log.topic.name
        for seg in listed:
            assert seg.end <= oracle(builder) or await shop.lake().fetch(log, seg)


async def all_is_done(shop: Shop) -> None:
    await nothing_live_is_lost(shop)
    for name, log in shop.logs.items():
        meta = await meta_of(shop, log)
        assert meta.log_start == oracle(log), name
        assert await epochs(shop, log) == {seg.epoch: seg.base for seg in reversed(log.segments)}, name
        assert all(chunk.last >= meta.swept for chunk in meta.chunks), name
    segments = {key for key in shop.store.names() if "@" not in key}
    assert segments == live_objects(shop)
    assert await named_manifests(shop) <= shop.store.names()


async def test_a_run_does_what_kafka_would_do_and_the_next_finds_nothing_left(shop: Shop) -> None:
    await build(shop)
    whole = shop.store.names()
    done = await run(shop.lake())
    await all_is_done(shop)
    assert shop.store.names() - live_objects(shop) == await named_manifests(shop)
    assert (done.logs, done.moved, done.left) == (6, 3, 0)
    assert done.fates[Fate.DELETED] == len(whole - shop.store.names())
    death = Death()
    again = await run(shop.lake(death))
    assert (again.moved, again.segments, again.fates) == (0, 0, {})
    assert {"delete", "txn", "put"}.isdisjoint(death.calls), "a run that finds nothing changes nothing"


async def test_the_same_on_a_real_etcd(etcd: EtcdClient, keyspace: Keyspace) -> None:
    real = Shop(etcd, keyspace)
    await build(real)
    await run(real.lake())
    await all_is_done(real)


async def test_killed_anywhere_a_run_loses_nothing_and_the_next_ends_it(shop: Shop) -> None:
    await build(shop)
    before = shop.take()
    death = Death()
    await run(shop.lake(death))
    steps = len(death.calls)
    assert steps > 40, death.calls
    for at in range(1, steps + 1):
        for after in (False, True):
            shop.put_back(before)
            with pytest.raises(Died):
                await run(shop.lake(Death(at, after=after)))
            await nothing_live_is_lost(shop)
            await run(shop.lake())
            await all_is_done(shop)


async def test_what_grows_while_a_run_waits_is_none_of_its_business(shop: Shop) -> None:
    """The log start moves again in the grace: only what lay below it before is deleted after."""
    log = await shop.topic("t", retention_ms=str(KEPT_MS))
    await grow(log, 8)
    retention = Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW)
    await retention._cut([(log.topic, 0)], 1)
    meta = await meta_of(shop, log)
    assert meta.log_start == 4 * PER_SEGMENT
    key = shop.keys.meta(log.topic.topic_id, 0)
    log.meta = Meta(log_start=6 * PER_SEGMENT)
    await shop.etcd.put(key, encode_meta(log.meta))
    for batch in retention._waiting:
        await retention._finish_batch(batch)
    left = {key for key in shop.store.names() if key.endswith(".kfs")}
    assert left == {log.segment_key(seg) for seg in log.segments[4:]}
    assert (await meta_of(shop, log)).swept == 4 * PER_SEGMENT


async def test_a_checkpoint_in_between_makes_the_run_look_again(shop: Shop) -> None:
    """Owners write meta too: the tail becomes a chunk while the segments in it are being deleted."""
    log = await shop.topic("t", retention_ms=str(KEPT_MS))
    await grow(log, 8)
    retention = Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW)
    await retention._cut([(log.topic, 0)], 1)
    (cut,) = retention._waiting.pop().cuts
    log.meta = await meta_of(shop, log)
    await log.checkpoint(keep=3)
    await retention._finish(cut, 0.0)
    meta = await meta_of(shop, log)
    assert (meta.log_start, meta.swept, len(meta.chunks)) == (20, 20, 1)
    await log.checkpoint(keep=0, put_meta=False)
    assert [seg.base for seg in (await read_lake(shop.lake()))[0].below] == []


async def test_an_object_that_is_not_the_committed_one_stays_and_is_told(shop: Shop) -> None:
    log = await shop.topic("t", retention_ms=str(KEPT_MS))
    await grow(log, 8)
    strange = log.segment_key(log.segments[1])
    await shop.store.put(strange, [b"another"])
    done = await run(shop.lake())
    assert done.fates == {Fate.DELETED: 7, Fate.REPLACED: 1}
    assert strange in shop.store.names()
    assert (await meta_of(shop, log)).swept == 4 * PER_SEGMENT, "and is not asked for again"


async def test_a_topic_that_is_being_deleted_is_left_alone(shop: Shop) -> None:
    log = await shop.topic("t", retention_ms=str(KEPT_MS))
    await grow(log, 8)
    retention = Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW)
    await retention._cut([(log.topic, 0)], 1)
    (cut,) = retention._waiting.pop().cuts
    deleting = replace(log.topic, state=TopicState.DELETING)
    await shop.etcd.put(shop.keys.topic("t"), encode_topic(deleting))
    await retention._finish(cut, 0.0)
    assert retention.report.fates == {Fate.TOPIC_GONE: 8}
    assert (await meta_of(shop, log)).swept == 0
    assert (await run(shop.lake())).logs == 0


async def test_a_log_that_cannot_be_read_is_told_and_holds_up_no_other(shop: Shop) -> None:
    """One has lost its manifest, another's is damaged, and the third is well."""
    lost = await shop.topic("lost", retention_ms=str(KEPT_MS))
    damaged = await shop.topic("damaged", retention_ms=str(KEPT_MS))
    well = await shop.topic("well", retention_ms=str(KEPT_MS))
    for log in (lost, damaged, well):
        await grow(log, 8)
        ref = await log.checkpoint(keep=2)
        if log is lost:
            await shop.store.delete(ref.key)
        if log is damaged:
            await shop.store.put(ref.key, [b"\xff"])
    done = await run(shop.lake())
    assert sorted(done.missed) == ["damaged/0", "lost/0"]
    assert (done.moved, done.segments) == (1, 4)
    assert (await meta_of(shop, well)).swept == 4 * PER_SEGMENT
    assert (await meta_of(shop, lost)).log_start == 0


async def test_a_log_that_cannot_be_read_is_named_in_the_plan_and_the_others_are_planned(shop: Shop) -> None:
    for name in ("lost", "well"):
        log = await shop.topic(name, retention_ms=str(KEPT_MS))
        await grow(log, 8)
        ref = await log.checkpoint(keep=2)
        if name == "lost":
            await shop.store.delete(ref.key)
    planned = await plan_lake(shop.lake(), None, NOW)
    assert list(planned.missed) == ["lost/0"]
    assert planned.starts == {("well", 0): 4 * PER_SEGMENT}


async def test_no_log_starts_later_than_was_agreed(shop: Shop) -> None:
    """After the plan was shown, more segments have expired: in its log, and in one that was not in the plan."""
    for name in ("shown", "later"):
        await grow(await shop.topic(name, retention_ms=str(KEPT_MS)), 8)
    planned = await plan_lake(shop.lake(), ["shown"], NOW)
    assert planned.starts == {("shown", 0): 4 * PER_SEGMENT}
    run = Retention(shop.lake(), grace_s=0, now_ms=lambda: 2 * NOW, starts_max=planned.starts)
    done = await run.run()
    assert (done.moved, done.segments) == (1, 4)
    assert (await meta_of(shop, shop.logs["shown"])).log_start == 4 * PER_SEGMENT
    assert (await meta_of(shop, shop.logs["later"])).log_start == 0
    again = Retention(shop.lake(), grace_s=0, now_ms=lambda: 2 * NOW, starts_max={("shown", 0): 5})
    assert (await again.run()).moved == 0, "a start never goes back"


async def test_slices_below_the_log_start_go_with_their_bundles(shop: Shop) -> None:
    """Another partition's records are in the same object. Deletion stops there, and resumes when they are settled."""
    log = await shop.topic("t", retention_ms="-1")
    await grow(log, 2)
    await log.checkpoint()
    log.as_slices = True
    await grow(log, 2)
    await log.retain_from(log.next, delete=False)
    bundles = {log.segment_key(seg) for seg in log.head.tail}
    for _ in range(2):
        await Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW).run()
        assert bundles <= shop.store.names()
        assert (await meta_of(shop, log)).swept == 2 * PER_SEGMENT
    log.meta = await meta_of(shop, log)
    await log.settle()
    await Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW).run()
    assert (await meta_of(shop, log)).swept == log.next
    assert bundles <= shop.store.names()


async def test_a_plan_has_no_slice_that_the_run_before_it_left(shop: Shop) -> None:
    """Slices expire like segments. Below the log start no run deletes them or a segment behind them, so no plan lists
    these, and no run waits for them. The plan lists all of them as soon as the slices are settled."""
    log = await shop.topic("t", retention_ms="1000")
    await grow(log, 1)
    log.as_slices = True
    await grow(log, 2)
    log.as_slices = False
    await grow(log, 1)
    planned = [(each.segment.base, each.rule) for each in plan(await read_lake(shop.lake()), NOW)]
    assert planned == [(number * PER_SEGMENT, Rule.TIME) for number in range(4)]
    report = await run(shop.lake())
    assert (report.moved, report.segments) == (1, 1)
    assert plan(await read_lake(shop.lake()), NOW) == []
    again = Retention(shop.lake(), grace_s=FOREVER_S, now_ms=lambda: NOW)
    async with asyncio.timeout(FOREVER_S / 2):
        assert (await again.run()).segments == 0
    log.meta = await meta_of(shop, log)
    await log.settle()
    planned = [(each.segment.base, each.rule) for each in plan(await read_lake(shop.lake()), NOW)]
    assert planned == [(number * PER_SEGMENT, Rule.DELETED) for number in range(1, 4)]
    assert (await run(shop.lake())).segments == 3
    assert plan(await read_lake(shop.lake()), NOW) == []
