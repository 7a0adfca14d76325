"""etcd was emptied or restored: no topic is created, changed or deleted, and no cluster id is drawn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from kafscale.admin import deletion, plan
from kafscale.admin.cluster_view import cluster_id
from kafscale.admin.errors import guarded
from kafscale.admin.plan import NewTopic, Refused
from kafscale.storage.etcd.client import Delete, Put, Txn
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack, witnesses_prefix
from kafscale.storage.keys import prefix_end
from kafscale.storage.objects import ObjectInfo
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode

from services.admin.tests.harness import Admin


async def goes_back(admin: Admin, to: dict[bytes, bytes]) -> None:
    """To these values, with newer revisions."""
    root = admin.keys.root()
    await admin.etcd.txn(Txn(success=(Delete(root, prefix_end(root)),)))
    await admin.etcd.txn(Txn(success=tuple(Put(key, value) for key, value in to.items())))


async def state(admin: Admin) -> dict[bytes, bytes]:
    return {kv.key: kv.value for kv in (await admin.etcd.prefix(admin.keys.root())).kvs}


async def created(admin: Admin, name: str) -> Topic:
    made = await admin.store.create(NewTopic(name=name), now_ms=1)
    assert isinstance(made, Topic)
    return made


Change = Callable[[Admin], Awaitable[Topic | Refused]]
CHANGES: dict[str, Change] = {
    "create": lambda admin: admin.store.create(NewTopic(name="new"), now_ms=1),
    "grow": lambda admin: admin.store.change("old", lambda topic: plan.grow(topic, 9)),
    "delete": lambda admin: admin.store.change("old", plan.mark_deleting),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("emptied", [True, False])
async def test_no_topic_changes_in_an_etcd_that_went_back(
    admin: Admin, change: Change, emptied: bool
) -> None:
    await created(admin, "old")
    older = await state(admin)
    await admin.history.advance()
    await goes_back(admin, {} if emptied else older)
    before = await state(admin)
    for _ in range(2):
        refused = await guarded(change(admin))
        assert isinstance(refused, Refused)
        unknown = emptied and change is not CHANGES["create"]
        assert refused.error is (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.KAFKA_STORAGE_ERROR
        )
    assert await state(admin) == before


async def test_an_admin_whose_fence_is_too_old_goes_on(admin: Admin) -> None:
    await created(admin, "first")
    other = History(admin.etcd, admin.keys, admin.objects)
    for _ in range(20):
        await other.advance()
    await created(admin, "second")


async def test_no_cluster_id_is_drawn_in_an_etcd_that_lost_its_data(admin: Admin) -> None:
    drawn = await cluster_id(admin.etcd, admin.keys, 1, admin.history)
    assert drawn is not None
    assert await cluster_id(admin.etcd, admin.keys, 2, admin.history) == drawn
    await goes_back(admin, {})
    for history in (admin.history, History(admin.etcd, admin.keys, admin.objects)):
        with pytest.raises(WentBack):
            await cluster_id(admin.etcd, admin.keys, 3, history)
    assert await state(admin) == {}


async def objects(admin: Admin) -> set[str]:
    return {info.key async for info in admin.objects.list(admin.keys.topic_prefix("t"))}


async def test_a_deletion_that_an_older_etcd_remembers_takes_no_object_of_a_later_topic(admin: Admin) -> None:
    await created(admin, "t")
    marked = await admin.store.change("t", plan.mark_deleting)
    assert isinstance(marked, Topic)
    older = await state(admin)
    await admin.history.advance()
    # the deletion ended, a topic of the name was created again and has records; then etcd was restored
    await admin.objects.put(admin.keys.segment_key("t", 0, 0), [b"of the later topic"])
    await goes_back(admin, older)
    await admin.topics.refresh()
    before = await objects(admin)
    (pending,) = admin.deletions._pending()
    assert await admin.deletions._try(pending) is deletion.Outcome.STALLED
    assert await objects(admin) == before


async def test_a_page_stays_if_etcd_goes_back_after_it_was_listed(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(admin, "t")
    await admin.store.change("t", plan.mark_deleting)
    await admin.objects.put(admin.keys.segment_key("t", 0, 0), [b"x"])
    await admin.topics.refresh()
    pages = admin.deletions._pages

    async def and_then_it_goes_back(topic: Topic) -> object:
        async for page in pages(topic):
            prefix = witnesses_prefix(admin.keys)
            await admin.etcd.txn(Txn(success=(Delete(prefix, prefix_end(prefix)),)))
            found: list[ObjectInfo] = page
            yield found

    monkeypatch.setattr(admin.deletions, "_pages", and_then_it_goes_back)
    (pending,) = admin.deletions._pending()
    assert await admin.deletions._try(pending) is deletion.Outcome.STALLED
    assert len(await objects(admin)) == 1
