"""Compaction overtaken and left in doubt: who publishes on what has changed does no harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.log.heads import encode_meta
from kafscale.log.meta_swap import Overtaken
from kafscale.storage.etcd.client import EtcdUnknown, Txn, TxnResult, UnknownKind
from kafscale.wire.records import Codec, Record

from .compaction_rounds import (
    DUE,
    NOW,
    build,
    compact,
    grow,
    is_sound,
    kept,
    last_values,
    meta_of,
    produced,
    read,
    some,
)
from .shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


class Upset:
    """A store that does something else once, when the first compacted object is put."""

    def __init__(self, shop: Shop, deed: Any) -> None:
        self._store = shop.store
        self._deed = deed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, key: str, *args: Any, **how: Any) -> str:
        if "/compacted/" in key and self._deed is not None:
            deed, self._deed = self._deed, None
            await deed()
        return await self._store.put(key, *args, **how)


def upset(shop: Shop, deed: Any) -> Lake:
    store: Any = Upset(shop, deed)
    return Lake(shop.etcd, shop.keys, store)


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
            answer: TxnResult = await self._etcd.txn(txn)
            return answer
        if self._applied.pop(0):
            await self._etcd.txn(txn)
        raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer")


@pytest.mark.parametrize("applied", [[True], [False], [False, True], [False, False]])
async def test_a_swap_whose_answer_is_lost_is_asked_again(
    shop: Shop, applied: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.log.meta_swap.SEND_AGAIN_S", 0)
    log = await build(shop)
    etcd: Any = Doubtful(shop.etcd, applied)
    done = await compact(Lake(etcd, shop.keys, shop.store))
    assert [each.trouble for each in done.outcomes] == [None]
    assert await read(shop.lake()) == kept(log)
    assert await is_sound(shop) == set()


async def test_a_swap_that_stays_in_doubt_deletes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.log.meta_swap.SEND_AGAIN_S", 0)
    log = await build(shop)
    before = shop.store.names()
    etcd: Any = Doubtful(shop.etcd, [False] * 5)
    (outcome,) = (await compact(Lake(etcd, shop.keys, shop.store))).outcomes
    assert isinstance(outcome.trouble, EtcdUnknown)
    assert before < shop.store.names(), "an answer may still come true: a collector settles it"
    assert await read(shop.lake()) == produced(log)
    await is_sound(shop)


class LostThen:
    """etcd that applies the first transaction, does `deed`, and then loses the answer."""

    def __init__(self, etcd: Any, deed: Callable[[], Awaitable[None]]) -> None:
        self._etcd = etcd
        self._deed: Callable[[], Awaitable[None]] | None = deed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._etcd, name)

    async def txn(self, txn: Txn) -> TxnResult:
        answer: TxnResult = await self._etcd.txn(txn)
        if self._deed is not None:
            deed, self._deed = self._deed, None
            await deed()
            raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer")
        return answer


class Stopped(Exception):
    """A round that died after its first group."""


def stop_after_a_group(*_: object) -> None:
    raise Stopped


async def test_a_swap_that_was_applied_and_overtaken_loses_no_manifest(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another round replaces the new segment before the swap is sent again. What follows the group in the last
    manifest has a manifest of the swap's for itself, and that is still named."""
    monkeypatch.setattr("kafscale.log.meta_swap.SEND_AGAIN_S", 0)
    log = await shop.topic("t", **DUE)

    def unique(number: int, value: bytes) -> list[Record]:
        return [Record(timestamp=200 + number, key=b"u%d" % number, value=value)]

    for number in range(4):
        await log.append(some(4, log.next), unique(number, b"old"))
        if number == 2:
            await log.checkpoint()
    await log.claim(2)
    await grow(log, 2, cycle(Codec))
    await log.checkpoint()
    await grow(log, 4, cycle(Codec))
    await log.checkpoint(keep=2)

    async def another_round() -> None:
        log.meta = await meta_of(shop, log)
        for number in range(4):
            await log.append(unique(number, b"new"))
        await grow(log, 3, cycle(Codec))
        await log.checkpoint(keep=2)
        with pytest.raises(Stopped):
            await Round(shop.lake(), Bounds(grace_s=None), stop_after_a_group, lambda: NOW).run()

    etcd: Any = LostThen(shop.etcd, another_round)
    await compact(Lake(etcd, shop.keys, shop.store))
    assert {chunk.key for chunk in (await meta_of(shop, log)).chunks} <= shop.store.names()
    assert last_values(await read(shop.lake())) == last_values(produced(log))
    await is_sound(shop)


async def test_what_may_have_been_published_is_left_to_the_collector(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the swap named was replaced before it was sent again: nobody can say any more that it was applied."""
    monkeypatch.setattr("kafscale.log.meta_swap.SEND_AGAIN_S", 0)
    log = await shop.topic("t", **DUE)
    await grow(log, 3, cycle(Codec))
    await log.checkpoint(keep=1)
    published: set[str] = set()

    async def replace_all() -> None:
        """As another round does, whose grace for reads of our segment has only begun."""
        published.update(key for key in shop.store.names() if "/compacted/" in key)
        log.meta = await meta_of(shop, log)
        await grow(log, 3, cycle(Codec))
        await log.checkpoint(keep=1)
        await Round(shop.lake(), Bounds(grace_s=None), lambda *_: None, lambda: NOW).run()

    etcd: Any = LostThen(shop.etcd, replace_all)
    (outcome,) = (await compact(Lake(etcd, shop.keys, shop.store))).outcomes
    assert isinstance(outcome.trouble, Overtaken)
    assert published
    assert published <= shop.store.names(), "readers may be at it"
    assert last_values(await read(shop.lake())) == last_values(produced(log))
    await is_sound(shop)
