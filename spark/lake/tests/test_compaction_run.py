"""Rounds of compaction, killed at every single call: what readers see is never wrong."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.compaction.latest_offsets import KEYS_MAX
from kafscale.lake.compaction.plan import Reason
from kafscale.lake.compaction.run import Bounds, Pace, Round
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.retention.deletes import Fate, delete_all
from kafscale.lake.retention.orphans import Orphans
from kafscale.log.heads import Seg, decode_head
from kafscale.log.manifests import decode_manifest
from kafscale.log.meta_swap import Overtaken
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.testkit.logbuilder import LogBuilder
from kafscale.wire.records import Codec

from .compaction_rounds import (
    DUE,
    KEEP_MS,
    NOW,
    build,
    compact,
    grow,
    is_sound,
    kept,
    last_values,
    meta_of,
    only,
    produced,
    read,
)
from .shop import Death, Died, Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


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


async def test_bytes_are_paid_for_in_time(shop: Shop) -> None:
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    await build(shop)
    pace = Pace(io_bytes_per_s=1, within_ms=None, sleep=sleep)
    done = await Round(shop.lake(), Bounds(grace_s=0), lambda *_: None, lambda: NOW, pace).run()
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


class Late:
    """A store in which another does something before the first segment is read."""

    def __init__(self, shop: Shop, deed: Any) -> None:
        self._store = shop.store
        self._deed = deed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str, **how: Any) -> bytes:
        if key.endswith(".kfs") and self._deed is not None:
            deed, self._deed = self._deed, None
            await deed()
        return await self._store.get(key, **how)


async def test_a_log_that_another_compacted_before_it_was_read_is_no_damage(shop: Shop) -> None:
    """The other's grace is over, so what was to be read is gone, and nobody need look."""
    log = await build(shop)
    store: Any = Late(shop, lambda: compact(shop.lake()))
    done = await compact(Lake(shop.etcd, shop.keys, store))
    (outcome,) = done.outcomes
    assert isinstance(outcome.trouble, Overtaken)
    assert not done.uncleanable
    assert not done.stands_still, "the other got on"
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
