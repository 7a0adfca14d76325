"""The objects of deleted topics: page by page, in bounded memory, and one topic beside another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from kafscale.admin import deletion, plan
from kafscale.admin.deletion import Pages
from kafscale.admin.plan import NewTopic
from kafscale.log.heads import Head, encode_head
from kafscale.runtime.exposition import expose
from kafscale.storage.objects import (
    Doomed,
    MemoryStore,
    ObjectInfo,
    Outcome,
    StoreUnavailable,
)
from kafscale.storage.recovery_keys import deletion_mark
from kafscale.storage.topics import Topic

from services.admin.tests.harness import Admin

PAGE = 10


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "DELETES_MAX", PAGE)
    monkeypatch.setattr(deletion, "RETRY_DELAY_S", 0.01)


class Watched(MemoryStore):
    """Counts what is listed and not deleted yet; fails as told."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.held_max = 0
        self.order: list[str] = []
        self.fails = False

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, start_after=start_after):
            self.held += 1
            self.held_max = max(self.held_max, self.held)
            yield info

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        self.held -= len(doomed)
        self.order.append(doomed[0].key)
        if self.fails:
            return [StoreUnavailable(each.key, "503") for each in doomed]
        return await super().delete_many(doomed)


@pytest.fixture
def watched(admin: Admin) -> Watched:
    store = Watched()
    admin.objects = store
    admin.deletions._store = store
    return store


async def doomed_topic(admin: Admin, name: str, objects: int) -> Topic:
    made = await admin.store.create(NewTopic(name=name), now_ms=1)
    assert isinstance(made, Topic)
    for number in range(objects):
        await admin.objects.put(admin.keys.segment_key(name, 0, number), [b"x"])
    marked = await admin.store.change(name, plan.mark_deleting)
    assert isinstance(marked, Topic)
    found = await admin.store.read(name)
    assert found is not None
    return found


async def test_no_more_than_a_page_is_in_memory(admin: Admin, watched: Watched) -> None:
    topic = await doomed_topic(admin, "t", 25 * PAGE + 3)
    assert await admin.deletions._finish(topic, Pages())
    assert watched.held_max == PAGE
    assert [info async for info in admin.objects.list(admin.keys.topic_prefix("t"))] == []
    assert await admin.store.read("t") is None


async def test_a_deletion_that_was_broken_off_goes_on_with_what_is_left(
    admin: Admin, watched: Watched
) -> None:
    topic = await doomed_topic(admin, "t", 3 * PAGE)
    pages = Pages()
    broken = watched.delete_many

    async def once(doomed: Sequence[Doomed]) -> list[Outcome]:
        watched.fails = pages.count == 1
        return await broken(doomed)

    watched.delete_many = once  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await admin.deletions._finish(topic, pages)
    assert pages.freed == PAGE
    assert len([info async for info in admin.objects.list(admin.keys.topic_prefix("t"))]) == 2 * PAGE
    assert await admin.deletions._finish(topic, Pages())
    assert [info async for info in admin.objects.list(admin.keys.topic_prefix("t"))] == []


async def test_nothing_is_deleted_once_the_record_is_another(admin: Admin, watched: Watched) -> None:
    """Another admin was through, and the name has a successor: what was listed since may be its."""
    stale = await doomed_topic(admin, "t", 2 * PAGE)
    listed = watched.list

    async def overtaken(prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in listed(prefix, start_after=start_after):
            if info.key == admin.keys.segment_key("t", 0, 0):
                await admin.etcd.txn(plan.free_name(admin.keys, stale))
                await admin.store.create(NewTopic(name="t"), now_ms=2)
            yield info

    watched.list = overtaken  # type: ignore[method-assign]
    assert await admin.deletions._finish(stale, Pages())
    assert watched.order == []


async def test_a_large_topic_gives_way_to_others(
    admin: Admin, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "PAGES_PER_TURN", 2)
    large = await doomed_topic(admin, "large", 9 * PAGE)
    assert not await admin.deletions._finish(large, Pages())
    assert len(watched.order) == 2
    small = await doomed_topic(admin, "small", 1)
    await admin.topics.refresh()
    task = asyncio.create_task(admin.deletions.run())
    try:
        async with asyncio.timeout(20):
            while await admin.store.read("large") is not None:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    small_at = watched.order.index(admin.keys.segment_key(small.name, 0, 0))
    assert small_at < len(watched.order) - 1


async def test_rounds_that_delete_nothing_are_counted_until_one_does(admin: Admin, watched: Watched) -> None:
    await doomed_topic(admin, "t", PAGE)
    await admin.topics.refresh()
    watched.fails = True
    task = asyncio.create_task(admin.deletions.run())

    def told(name: str) -> float:
        lines = expose(admin.metrics.read()).decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"kafscale_admin_{name} "))

    try:
        async with asyncio.timeout(20):
            while told("deletion_stalled_rounds") < 3:
                await asyncio.sleep(0.01)
            assert (told("deleting_topics"), told("deleted_objects_total")) == (1, 0)
            assert admin.deletions._delay_s >= 8 * deletion.RETRY_DELAY_S, "it is tried less and less often"
            watched.fails = False
            while told("deletion_stalled_rounds") or told("deleting_topics"):
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert told("deleted_objects_total") == PAGE


async def test_a_mark_is_stored_before_the_heads_go(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await doomed_topic(admin, "t", 1)
    head = admin.keys.head(topic.topic_id, 0)
    await admin.etcd.put(head, encode_head(Head(epoch=1, topic="t")))
    puts = admin.objects.put

    async def refused(key: str, *_: object, **__: object) -> str:
        raise StoreUnavailable(key, "503")

    monkeypatch.setattr(admin.objects, "put", refused)
    with pytest.raises(StoreUnavailable):
        await admin.deletions._finish(topic, Pages())
    assert await admin.etcd.get(head) is not None
    monkeypatch.setattr(admin.objects, "put", puts)
    assert await admin.deletions._finish(topic, Pages())
    assert await admin.etcd.get(head) is None
    assert await admin.object_names() == [deletion_mark(admin.keys, topic.topic_id, admin.clock.wall_ms())]
