"""etcd was lost or restored: no job moves a log start or deletes an object, in whatever moment it happens."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.lake.retention.apply import Retention
from kafscale.lake.retention.deletes import Condemned, delete_all
from kafscale.lake.retention.log_starts import move_starts
from kafscale.lake.retention.orphans import Orphans
from kafscale.log.heads import Meta, decode_meta
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.testkit.logbuilder import LogBuilder, records

from .shop import Shop

NOW_MS = 1 << 50
Job = Callable[[Lake], Awaitable[object]]


def retention(lake: Lake) -> Awaitable[object]:
    return Retention(lake, grace_s=0, now_ms=lambda: NOW_MS).run()


def orphans(lake: Lake) -> Awaitable[object]:
    return Orphans(lake, grace_s=0).collect()


def compaction(lake: Lake) -> Awaitable[object]:
    return Round(lake, Bounds(grace_s=0), lambda *_: None, lambda: NOW_MS).run()


JOBS = {"retention": retention, "orphans": orphans, "compaction": compaction}


class Lost(Shop):
    """A log whose first segments have expired, with an orphan."""

    async def begin(self) -> LogBuilder:
        log = await self.topic("t", retention_ms="1", cleanup_policy="compact,delete")
        for _ in range(4):
            await log.append(records(5))
        await log.checkpoint(keep=1)
        await self.store.put(self.keys.manifest_key(log.topic.topic_id, 0, 0, "left"), [b"orphan"])
        self.history = History(self.etcd, self.keys, self.store)
        await self.history.verify()
        return log

    async def goes_back(self) -> None:
        """To the values of now, which are consistent; the bucket has a later witness."""
        older = self.memory.snapshot()
        await History(self.etcd, self.keys, self.store).advance()
        self.memory.restore(older)

    async def meta(self, log: LogBuilder) -> Meta:
        kv = await self.etcd.get(self.keys.meta(log.topic.topic_id, 0))
        assert kv is not None
        return decode_meta(kv.value)


@pytest.fixture
def shop() -> Lost:
    return Lost()


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
async def test_no_job_begins_in_an_etcd_that_went_back(shop: Lost, job: Job) -> None:
    log = await shop.begin()
    await shop.goes_back()
    before, meta = shop.store.names(), await shop.meta(log)
    for lake in (Lake(shop.etcd, shop.keys, shop.store), shop.lake()):
        with pytest.raises(WentBack):
            await job(lake)
    assert (shop.store.names(), await shop.meta(log)) == (before, meta)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
async def test_each_job_has_something_to_do_otherwise(shop: Lost, job: Job) -> None:
    await shop.begin()
    before = shop.store.names()
    await job(shop.lake())
    assert before - shop.store.names()


async def test_what_was_condemned_before_etcd_went_back_stays(shop: Lost) -> None:
    log = await shop.begin()
    key = shop.keys.manifest_key(log.topic.topic_id, 0, 0, "left")
    await shop.goes_back()
    for lake in (shop.lake(), Lake(shop.etcd, shop.keys, shop.store, shop.history)):
        with pytest.raises(WentBack):
            await delete_all(lake, [Condemned(topic=log.topic, key=key, etag=None)])
    assert key in shop.store.names()


async def test_the_history_is_verified_once_for_what_was_decided_before(shop: Lost) -> None:
    log = await shop.begin()
    lake = Lake(shop.etcd, shop.keys, shop.store, shop.history)
    doomed = [Condemned(topic=log.topic, key="shop/none", etag=None)]
    decided_s = time.monotonic()
    await shop.history.verify()
    await shop.goes_back()
    await delete_all(lake, doomed, decided_s)  # it was dead in the good history
    with pytest.raises(WentBack):
        await delete_all(lake, doomed, time.monotonic())


async def test_no_log_start_moves_although_the_history_was_verified_a_moment_ago(shop: Lost) -> None:
    log = await shop.begin()
    lake = Lake(shop.etcd, shop.keys, shop.store, shop.history)
    await shop.history.advance()
    await shop.goes_back()
    for kv in shop.memory.under(b""):  # it lost what was verified a moment ago as well
        if b"/h/00000000-000000000001" in kv.key:
            await shop.etcd.delete(kv.key)
    meta = await shop.meta(log)
    with pytest.raises(WentBack):
        await move_starts(lake, ManifestBlocks(shop.store), [(log.topic, 0)], lambda: NOW_MS)
    assert await shop.meta(log) == meta
