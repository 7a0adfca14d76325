"""Compaction killed at every single call, overtaken and left in doubt: what readers see is never wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from kafscale.cli.fsck.run import Fsck
from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.compaction.newest import KEYS_MAX
from kafscale.lake.compaction.plan import Reason
from kafscale.lake.compaction.publish import Overtaken
from kafscale.lake.compaction.report import Report
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.retention.deletes import Fate, delete_all
from kafscale.lake.retention.orphans import Orphans
from kafscale.lake.scan import Question, scan
from kafscale.storage.etcd import EtcdClient, EtcdUnknown, Txn, TxnResult, UnknownKind
from kafscale.storage.heads import Meta, Seg, decode_head, decode_meta, encode_meta
from kafscale.storage.keys import Keyspace
from kafscale.storage.manifests import decode_manifest
from kafscale.testkit.logbuilder import LogBuilder
from kafscale.wire.records import Codec, Record, records_in

from .shop import Death, Died, Shop

NOW = 1_000_000
KEEP_MS = 5_000
Row = tuple[int, bytes | None, bytes | None]
DUE = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.1", "delete_retention_ms": str(KEEP_MS)}


@pytest.fixture
def shop() -> Shop:
    return Shop()


def some(count: int, at: int, *, keys: int = 7) -> list[Record]:
    """Keys come again and again; every fifth record deletes its key."""
    return [
        Record(
            timestamp=100 + at + n,
            key=b"k%d" % ((at + n) % keys),
            value=None if (at + n) % 5 == 0 else b"value %d" % (at + n),
        )
        for n in range(count)
    ]


async def grow(log: LogBuilder, segments: int, codecs: Iterator[Codec]) -> None:
    for _ in range(segments):
        at = log.next
        await log.append(some(4, at), some(3, at + 4), codec=next(codecs))


async def build(shop: Shop, name: str = "t", **configs: str) -> LogBuilder:
    """Three chunks, of which the second holds two epochs, and a tail of two."""
    log = await shop.topic(name, **(DUE | configs))
    codecs = cycle(Codec)
    await grow(log, 3, codecs)
    await log.checkpoint()
    await grow(log, 2, codecs)
    await log.claim(2)
    await grow(log, 2, codecs)
    await log.checkpoint()
    await grow(log, 4, codecs)
    await log.checkpoint(keep=2)
    return log


def rows_in(batches: Sequence[bytes]) -> list[Row]:
    return [(record.offset, record.key, record.value) for batch in batches for record in records_in(batch)]


def produced(log: LogBuilder) -> list[Row]:
    return rows_in([batch.data for batch in log.batches])


def kept(log: LogBuilder, *, tail: int = 2) -> list[Row]:
    """By a walk with a dict: what one pass leaves, as all but the tail may be compacted."""
    reach = log.segments[-tail].base
    newest = {key: offset for offset, key, _ in produced(log) if offset < reach}
    return [row for row in produced(log) if row[0] >= reach or row[0] >= newest[row[1]]]


async def read(lake: Lake, name: str = "t") -> list[Row]:
    (log,) = await read_lake(lake, [name])
    found: list[Row] = []
    async for batch in scan(lake, log, Question()):
        found += zip(*(batch[column].to_pylist() for column in ("offset", "key", "value")), strict=True)
    return found


async def compact(lake: Lake, *, now_ms: int = NOW, **bounds: Any) -> Report:
    done = Round(lake, Bounds(grace_s=0, **bounds), lambda *_: None, lambda: now_ms)
    return await done.run()


async def only(lake: Lake, name: str = "t") -> Log:
    (log,) = await read_lake(lake, [name])
    return log


async def meta_of(shop: Shop, log: LogBuilder) -> Meta:
    kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
    assert kv is not None
    return decode_meta(kv.value)


async def is_sound(shop: Shop) -> set[str]:
    """etcd and the objects agree; the objects that nothing names are told."""
    verdict = await Fsck(shop.etcd, shop.keys, shop.store, lambda *_: None).run()
    assert verdict.problems == []
    named = set()
    for log in await read_lake(shop.lake()):
        named |= {chunk.key for chunk in log.meta.chunks}
        for seg in log.segments:
            named |= {shop.lake().key_of(log, seg), shop.lake().index_key_of(log, seg)}
        kv = await shop.etcd.get(shop.keys.head(log.topic.topic_id, log.partition))
        assert kv is not None
        held = sum(seg.size for seg in log.segments)
        if log.meta.log_start == 0:
            assert decode_head(kv.value).bytes - log.meta.freed == held, "what tools are told of sizes"
    assert named <= shop.store.names()
    return shop.store.names() - named


def last_values(rows: Sequence[Row]) -> dict[bytes | None, bytes | None]:
    """What a consumer that reads all of it holds in the end."""
    return {key: value for _, key, value in rows}


async def test_a_round_leaves_the_last_record_of_each_key_and_no_object_too_many(shop: Shop) -> None:
    log = await build(shop)
    done = await compact(shop.lake())
    assert [each.trouble for each in done.outcomes] == [None]
    assert await read(shop.lake()) == kept(log)
    assert await is_sound(shop) == set()
    (outcome,) = done.outcomes
    assert outcome.candidate.reason is Reason.RATIO
    assert (outcome.tally.before.segments, outcome.tally.after.segments) == (9, 2)
    assert outcome.tally.after.records == len(kept(log)) - 14
    assert done.bytes_after < done.bytes_before
    found = await only(shop.lake())
    assert [seg.epoch for seg in found.segments] == [1, 2, 2, 2]
    assert [bool(seg.key) for seg in found.segments] == [True, True, False, False]


async def test_the_same_on_a_real_etcd(etcd: EtcdClient, keyspace: Keyspace) -> None:
    real = Shop(etcd, keyspace)
    log = await build(real)
    await compact(real.lake())
    assert await read(real.lake()) == kept(log)
    assert await is_sound(real) == set()


async def test_a_second_round_changes_nothing(shop: Shop) -> None:
    await build(shop)
    await compact(shop.lake())
    death = Death()
    done = await compact(shop.lake(death))
    assert done.outcomes == ()
    assert {"delete", "txn", "put"}.isdisjoint(death.calls)


@pytest.mark.timeout(600)
async def test_killed_anywhere_readers_see_nothing_wrong_and_the_next_round_ends_it(shop: Shop) -> None:
    """Two groups of two segments, the second in two chunks. A read that was or was not carried out is the same."""
    log = await shop.topic("t", **DUE)
    await grow(log, 2, cycle([Codec.NONE]))
    await log.claim(2)
    await grow(log, 1, cycle([Codec.LZ4]))
    await log.checkpoint()
    await grow(log, 2, cycle([Codec.NONE]))
    await log.checkpoint(keep=1)
    before = shop.take()
    death = Death()
    await compact(shop.lake(death))
    steps = len(death.calls)
    assert steps > 35, death.calls
    deaths = [(at, False) for at in range(1, steps + 1)]
    deaths += [(at, True) for at, name in enumerate(death.calls, 1) if name in ("put", "txn", "delete")]
    for at, after in deaths:
        shop.put_back(before)
        with pytest.raises(Died):
            await compact(shop.lake(Death(at, after=after)))
        seen = await read(shop.lake())
        assert [row for row in kept(log, tail=1) if row not in seen] == [], "a live record is lost"
        assert [row for row in seen if row not in produced(log)] == []
        assert last_values(seen) == last_values(produced(log))
        await compact(shop.lake())
        assert await read(shop.lake()) == kept(log, tail=1)
        await is_sound(shop)


async def test_tombstones_go_when_they_are_due_although_nothing_else_is(shop: Shop) -> None:
    log = await build(shop)
    await compact(shop.lake())
    tombstones = [row for row in kept(log)[:-14] if row[2] is None]
    assert tombstones
    assert (await compact(shop.lake(), now_ms=NOW + KEEP_MS - 1)).outcomes == ()
    assert await read(shop.lake()) == kept(log)
    (outcome,) = (await compact(shop.lake(), now_ms=NOW + KEEP_MS)).outcomes
    assert outcome.candidate.reason is Reason.TOMBSTONES
    assert await read(shop.lake()) == [row for row in kept(log) if row not in tombstones]
    assert await is_sound(shop) == set()


async def test_a_log_goes_on_growing_and_is_compacted_again(shop: Shop) -> None:
    log = await build(shop)
    for _ in range(4):
        await compact(shop.lake())
        await synced(shop, log)
        await grow(log, 3, cycle([Codec.LZ4]))
        await log.checkpoint(keep=2)
    await compact(shop.lake())
    assert await read(shop.lake()) == kept(log)
    assert await is_sound(shop) == set()


async def synced(shop: Shop, log: LogBuilder) -> None:
    """The owner reads meta before its next checkpoint."""
    log.meta = await meta_of(shop, log)


async def test_a_pass_ends_where_the_keys_do_not_fit_and_the_next_goes_on(shop: Shop) -> None:
    log = await build(shop)
    rounds = 0
    while (await compact(shop.lake(), keys_max=7)).outcomes:
        rounds += 1
        assert last_values(await read(shop.lake())) == last_values(produced(log))
        assert rounds < 20
    assert last_values(await read(shop.lake())) == last_values(produced(log))
    assert KEYS_MAX > 7
    assert await is_sound(shop) == set()


class Upset:
    """A store that does something else once, when the first compacted object is put."""

    def __init__(self, shop: Shop, deed: Any) -> None:
        self._store = shop.store
        self._deed = deed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, key: str, *args: Any, **how: Any) -> str:
        deed, self._deed = self._deed, None
        if "/compacted/" in key and deed is not None:
            await deed()
        elif deed is not None:
            self._deed = deed
        return await self._store.put(key, *args, **how)


def upset(shop: Shop, deed: Any) -> Lake:
    return Lake(shop.etcd, shop.keys, Upset(shop, deed))  # type: ignore[arg-type]


async def test_an_owners_checkpoint_in_between_costs_no_upload(shop: Shop) -> None:
    log = await build(shop)

    async def checkpoint() -> None:
        await log.checkpoint(keep=1)

    done = await compact(upset(shop, checkpoint))
    assert [each.trouble for each in done.outcomes] == [None]
    assert await read(shop.lake()) == kept(log)
    assert await is_sound(shop) == set()
    assert len((await meta_of(shop, log)).chunks) >= 2


async def test_records_deleted_meanwhile_stay_deleted(shop: Shop) -> None:
    log = await build(shop)

    async def delete_records() -> None:
        await log.retain_from(10, delete=False)

    await compact(upset(shop, delete_records))
    assert await read(shop.lake()) == [row for row in kept(log) if row[0] >= 10]
    assert (await meta_of(shop, log)).log_start == 10
    await is_sound(shop)


async def test_a_collector_that_came_by_ends_the_work_on_the_log(shop: Shop) -> None:
    """It may have condemned what was uploaded before it (touch fence)."""
    log = await build(shop)
    before = await read(shop.lake())

    async def collect() -> None:
        log.meta = replace(log.meta, gc_seq=log.meta.gc_seq + 1)
        await shop.etcd.put(shop.keys.meta(log.topic.topic_id, 0), encode_meta(log.meta))

    (outcome,) = (await compact(upset(shop, collect))).outcomes
    assert isinstance(outcome.trouble, Overtaken)
    assert not outcome.uncleanable
    assert await read(shop.lake()) == before
    assert await is_sound(shop) == set(), "what was uploaded is taken away again"
    await compact(shop.lake())
    assert await read(shop.lake()) == kept(log)


async def test_two_rounds_at_once_do_no_harm(shop: Shop) -> None:
    log = await build(shop)

    async def another() -> None:
        await compact(shop.lake())

    (outcome,) = (await compact(upset(shop, another))).outcomes
    assert isinstance(outcome.trouble, Overtaken)
    assert await read(shop.lake()) == kept(log)
    assert await is_sound(shop) == set()


async def test_a_topic_deleted_meanwhile_is_left_alone(shop: Shop) -> None:
    log = await build(shop)

    async def delete_topic() -> None:
        await shop.etcd.delete(shop.keys.head(log.topic.topic_id, 0))
        await shop.etcd.delete(shop.keys.meta(log.topic.topic_id, 0))

    (outcome,) = (await compact(upset(shop, delete_topic))).outcomes
    assert isinstance(outcome.trouble, Overtaken)
    assert not [key for key in shop.store.names() if "/compacted/" in key]


class Doubtful:
    """etcd whose answers to the first transactions are lost; `applied` says which of these it carried out."""

    def __init__(self, etcd: Any, applied: list[bool]) -> None:
        self._etcd = etcd
        self._applied = applied

    def __getattr__(self, name: str) -> Any:
        return getattr(self._etcd, name)

    async def txn(self, txn: Txn) -> TxnResult:
        if not self._applied:
            return await self._etcd.txn(txn)  # type: ignore[no-any-return]
        if self._applied.pop(0):
            await self._etcd.txn(txn)
        raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer")


@pytest.mark.parametrize("applied", [[True], [False], [False, True], [False, False]])
async def test_a_swap_whose_answer_is_lost_is_asked_again(
    shop: Shop, applied: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.lake.compaction.publish.ASK_AGAIN_S", 0)
    log = await build(shop)
    etcd: Any = Doubtful(shop.etcd, applied)
    done = await compact(Lake(etcd, shop.keys, shop.store))
    assert [each.trouble for each in done.outcomes] == [None]
    assert await read(shop.lake()) == kept(log)
    assert await is_sound(shop) == set()


async def test_a_swap_that_stays_in_doubt_deletes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.lake.compaction.publish.ASK_AGAIN_S", 0)
    log = await build(shop)
    before = shop.store.names()
    etcd: Any = Doubtful(shop.etcd, [False] * 5)
    (outcome,) = (await compact(Lake(etcd, shop.keys, shop.store))).outcomes
    assert isinstance(outcome.trouble, EtcdUnknown)
    assert before < shop.store.names(), "an answer may still come true: a collector settles it"
    assert await read(shop.lake()) == produced(log)
    await is_sound(shop)


async def test_damage_in_one_log_is_told_and_holds_up_no_other(shop: Shop) -> None:
    damaged = await build(shop, "damaged")
    sound = await build(shop, "sound")
    key = damaged.segment_key(damaged.segments[1])
    body = bytearray(await shop.store.get(key))
    body[140] ^= 1
    etag = damaged.segments[1].etag
    info, _ = shop.store.take()[key]
    shop.store.put_back({**shop.store.take(), key: (info, bytes(body))})
    assert (await shop.store.head(key)).etag == etag  # type: ignore[union-attr]
    done = await compact(shop.lake())
    troubles = {each.candidate.log.topic.name: each.trouble for each in done.outcomes}
    assert isinstance(troubles["damaged"], CorruptSegment)
    assert troubles["sound"] is None
    assert [each.candidate.log.topic.name for each in done.uncleanable] == ["damaged"]
    assert await read(shop.lake(), "sound") == kept(sound)


async def test_a_round_out_of_time_stops_between_groups(shop: Shop) -> None:
    log = await build(shop)
    done = await compact(shop.lake(), within_ms=0)
    assert done.outcomes == ()
    assert await read(shop.lake()) == produced(log)


async def test_bytes_are_paid_for_in_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    await build(shop)
    monkeypatch.setattr("kafscale.lake.compaction.run.asyncio.sleep", sleep)
    done = await compact(shop.lake(), io_bytes_per_s=1)
    spent = 2 * done.bytes_before + done.bytes_after  # all was dirty: read for its keys, and for its records
    assert spent - 60 < max(waits) <= spent, "nobody slept, so the debt is the whole of it"


async def test_a_checkpoint_merges_what_was_compacted_as_it_is(shop: Shop) -> None:
    """Owners copy commit records from manifest to manifest: names, horizons and all."""
    log = await build(shop)
    await compact(shop.lake())
    meta = await meta_of(shop, log)
    listed: list[Seg] = []
    for chunk in meta.chunks:
        listed += decode_manifest(await shop.store.get(chunk.key)).segments
    compacted = [seg for seg in listed if seg.key]
    assert compacted
    assert all(seg.key.startswith(shop.keys.compacted_prefix(log.topic.topic_id)) for seg in compacted)
    assert any(seg.delete_horizon_ms == NOW + KEEP_MS for seg in compacted)
    kv = await shop.etcd.get(shop.keys.head(log.topic.topic_id, 0))
    assert kv is not None
    assert decode_head(kv.value).tail == tuple(log.segments[-2:]), "the tail is its owner's"


async def test_a_log_that_another_compacted_before_it_was_read_is_no_damage(shop: Shop) -> None:
    """The other's grace is over, so what was to be read is gone, and nobody need look."""
    log = await build(shop)
    logs = await read_lake(shop.lake())
    await compact(shop.lake())
    done = await Round(shop.lake(), Bounds(grace_s=0), lambda *_: None, lambda: NOW).over(logs)
    (outcome,) = done.outcomes
    assert isinstance(outcome.trouble, Overtaken)
    assert not done.uncleanable
    assert await read(shop.lake()) == kept(log)


async def test_without_a_grace_of_its_own_a_round_hands_over_what_it_replaced(shop: Shop) -> None:
    log = await build(shop)
    objects = shop.store.names()
    done = await Round(shop.lake(), Bounds(grace_s=None), lambda *_: None, lambda: NOW).run()
    assert objects <= shop.store.names(), "nothing was deleted"
    fates = await delete_all(shop.lake(), done.replaced)
    assert set(fates) == {Fate.DELETED}
    assert await read(shop.lake()) == kept(log)
    assert (await Orphans(shop.lake(), grace_s=0).collect(dry=True)).orphans == []
