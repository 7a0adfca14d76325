"""Lag by outlines is lag by whole logs, and looks at no manifest that it need not look at."""

from __future__ import annotations

import pytest
from kafscale.lake.catalog import read_lake, read_topics
from kafscale.lake.lag.measure import measure
from kafscale.lake.lag.outlines import Outlines
from kafscale.lake.lag.positions import Commit
from kafscale.lake.lag.rates import produced
from kafscale.storage.groups import CommittedOffset
from kafscale.testkit.logbuilder import LogBuilder, records

from .shop import Death, Shop

NOW = 10_000
EACH = 10


async def built(shop: Shop) -> LogBuilder:
    """Manifests of 30, 20 and 2 segments, then a tail of 3."""
    log = await shop.topic("t", retention_bytes="100000")
    for count in (30, 20, 2):
        for _ in range(count):
            await log.append(records(EACH, timestamp=100 + log.next))
        await log.checkpoint()
    for _ in range(3):
        await log.append(records(EACH, timestamp=100 + log.next))
    return log


def commits_at(*offsets: int) -> list[Commit]:
    return [
        Commit(group=f"g{at}", topic="t", partition=0, offset=CommittedOffset(offset=at, commit_ms=1))
        for at in offsets
    ]


@pytest.mark.parametrize("since_ms", [0, 2])
@pytest.mark.parametrize("start", [0, 5, 137, 305])
async def test_lag_is_the_same_as_over_all_segments(since_ms: int, start: int) -> None:
    """`created_ms` of all segments is 1: they are new for `since_ms` 0."""
    shop = Shop()
    log = await built(shop)
    await log.retain_from(start, delete=False)
    logs = await read_lake(shop.lake())
    offsets = [0, 3, 11, 155, 289, 299, 300, 305, 499, 515, 530, 549, 550]
    for some in ([], offsets, *([each] for each in offsets)):
        commits = commits_at(*some)
        found = await Outlines(shop.lake()).read({("t", 0): some}, since_ms)
        assert await measure(shop.lake(), found, commits, NOW) == await measure(
            shop.lake(), logs, commits, NOW
        )
        assert [(each.start, each.end) for each in found] == [(each.start, each.end) for each in logs]
        assert sum(s.size for s in found[0].segments) == sum(s.size for s in logs[0].segments)
        assert produced(found[0], since_ms) == produced(logs[0], since_ms)


async def test_of_some_topics_only_the_logs_that_are_asked_for_are_read() -> None:
    """A topic that no group reads costs a report of groups nothing."""
    shop = Shop()
    for name in ("t", "unread"):
        log = await shop.topic(name)
        await log.append(records(EACH))
        await log.checkpoint()
    death = Death()
    lake = shop.lake(death)
    assert [topic.name for topic in await read_topics(lake, ["t", "gone"])] == ["t"]
    assert "prefix" not in death.calls, "the records of other topics are not read"
    topics = await read_topics(lake)
    assert "prefix" in death.calls
    (found,) = await Outlines(lake).read({("t", 0): [3], ("gone", 0): [1]}, 2, topics)
    assert (found.topic.name, found.end) == ("t", EACH)
    assert len(await Outlines(lake).read({("t", 0): [3]}, 2)) == 2
    assert await Outlines(lake).read({}, 2, topics) == []


async def test_what_nobody_asks_for_is_one_segment_and_is_looked_at_once() -> None:
    shop = Shop()
    await built(shop)
    death = Death()
    outlines = Outlines(shop.lake(death))
    (log,) = await outlines.read({("t", 0): [12]}, 2)
    assert len(log.segments) == 1 + 16 + 1 + 1 + 1 + 3
    read = death.calls.count("get")
    for _ in range(3):
        assert await outlines.read({("t", 0): [12]}, 2) == [log]
    assert death.calls.count("get") == read, "manifests never change"
    await outlines.read({("t", 0): [540]}, 2)
    assert death.calls.count("get") == read, "a group that has read nearly everything is in the tail"


async def test_the_cache_of_manifests_is_bounded_in_bytes() -> None:
    shop = Shop()
    await built(shop)
    sizes = [len(await shop.store.get(key)) for key in shop.store.names() if "/manifest/" in key]
    outlines = Outlines(shop.lake(), cache_bytes_max=sum(sizes) - 1)
    await outlines.read({("t", 0): [12]}, 0)
    assert 0 < outlines._manifests._cached_bytes < sum(sizes)


async def test_who_has_nearly_read_a_manifest_has_the_next_one_looked_through() -> None:
    """After compaction a few segments may hold no record that is left, wherever the manifest ends."""
    shop = Shop()
    built_log = await built(shop)
    (log,) = await Outlines(shop.lake()).read({("t", 0): [299]}, 2)
    assert list(log.segments[1:16]) == built_log.segments[29:44]
    assert len(log.segments) == 1 + 15 + 1 + 1 + 3


async def test_a_log_that_starts_within_a_manifest_is_looked_at_once() -> None:
    """Its beginning has no digest, and retention moves it but once an hour."""
    shop = Shop()
    log = await built(shop)
    await log.retain_from(137, delete=False)
    death = Death()
    outlines = Outlines(shop.lake(death))
    first = await outlines.read({("t", 0): [155]}, 2)
    read = death.calls.count("get")
    assert await outlines.read({("t", 0): [155]}, 2) == first
    assert death.calls.count("get") == read
    await log.retain_from(145, delete=False)  # within the stretch that was remembered
    (moved,) = await outlines.read({("t", 0): [155]}, 2)
    assert sum(seg.size for seg in moved.segments) == sum(seg.size for seg in log.segments if seg.end > 145)
