"""A survey and a pass go through a log of any length without keeping it, whatever becomes of its manifests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kafscale.lake.catalog import NEVER, Lake, Outline, read_outlines
from kafscale.lake.compaction import due
from kafscale.lake.compaction import segments as walks
from kafscale.lake.compaction.due import candidates, due_plan, look
from kafscale.lake.compaction.plan import Group
from kafscale.lake.compaction.publish import publish, read_existing
from kafscale.lake.compaction.segments import Groups, follow, is_listed
from kafscale.log.heads import Seg
from kafscale.log.manifest_blocks import ManifestBlocks
from kafscale.log.meta_swap import Overtaken
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.slots import slot_of
from kafscale.testkit.logbuilder import LogBuilder, records

from .replaced import Hooked, rename_manifest
from .shop import Shop
from .test_compaction_plan import groups

NOW = 1_000_000
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def built(shop: Shop, name: str = "t", segments: int = 24, **configs: str) -> LogBuilder:
    log = await shop.topic(name, **configs)
    for number in range(segments):
        await log.append(records(5))
        if number % 8 == 7:
            await log.checkpoint(keep=1)
    return log


async def outline_of(shop: Shop, log: LogBuilder) -> Outline:
    (outline,) = await read_outlines(shop.lake(), [(log.topic, 0)])
    return outline


async def followed(lake: Lake, outline: Outline, first: int = 0, end: int = NEVER) -> list[Seg]:
    return [seg async for seg in follow(lake, outline, first, end)]


async def to_the_end(walk: AsyncIterator[Seg]) -> None:
    async for _ in walk:
        pass


async def test_the_logs_that_are_due_are_those_of_compacted_topics_and_the_dirtiest_comes_first(
    shop: Shop,
) -> None:
    for name, policy in (("a", "compact"), ("b", "delete"), ("c", "compact,delete")):
        await built(shop, name, **(COMPACT | {"cleanup_policy": policy}))
    log = shop.logs["a"]
    seg = log.segments[0]
    key = shop.keys.compacted_key(log.topic.topic_id, 0, 0, "u")
    await rename_manifest(shop, log, log.meta.chunks[0].key, set(), replace(seg, key=key))
    found, missed = await candidates(shop.lake(), None, NOW)
    assert [each.log.topic.name for each in found] == ["c", "a"]
    assert [each.dirty.segments for each in found] == [23, 22]
    chosen, _ = await candidates(shop.lake(), ["a", "b"], NOW)
    assert [each.log.topic.name for each in chosen] == ["a"]
    assert missed == {}
    assert await look(shop.lake(), ("nobody", 0), NOW) is None


async def test_the_plan_names_damaged_logs_and_the_groups_that_have_not_read_to_the_end_of_what_is_compacted(
    shop: Shop,
) -> None:
    for name in ("well", "lost"):
        log = await built(shop, name, **COMPACT)
        for group, offset in (("behind", 3), ("ahead", log.next)):
            key = shop.keys.committed(slot_of(group), group, log.topic.topic_id, 0)
            await shop.etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=1)))
    await shop.store.delete(shop.logs["lost"].meta.chunks[0].key)
    due = await due_plan(shop.lake(), None, NOW)
    end = shop.logs["well"].segments[-1].base
    assert [(row["group"], row["topic"], row["start"], row["records"]) for row in due.losses] == [
        ("behind", "well", end, end - 3)
    ]
    assert [row["topic"] for row in due.rows] == ["well"]
    assert list(due.missed) == ["lost/0"]
    assert due.places == [("well", 0), ("lost", 0)], "a round reports the damaged one again"


async def test_a_manifest_that_is_merged_under_the_walk_costs_a_look_at_meta(shop: Shop) -> None:
    log = await built(shop)
    outline = await outline_of(shop, log)
    replaced: set[str] = set()

    async def merge(key: str) -> bool:
        if key.endswith(".mf") and key not in replaced:
            await rename_manifest(shop, log, key, replaced)
        return False

    store: Any = Hooked(shop.store, "get", merge)
    lake = Lake(shop.etcd, shop.keys, store)
    assert await followed(lake, outline) == log.segments
    assert len(replaced) == 3
    some = [seg for seg in log.segments if seg.end > 17 and seg.end <= 90]
    assert await followed(shop.lake(), await outline_of(shop, log), 17, 92) == some


async def test_segments_that_became_one_across_the_place_that_was_reached_are_not_gone_through(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another round compacts the same log: what it has made is looked at from its beginning."""
    monkeypatch.setattr(walks, "ManifestBlocks", partial(ManifestBlocks, block_bytes=150))
    log = await built(shop, **COMPACT)
    first, second, *_ = log.segments
    outline = await outline_of(shop, log)
    walk = follow(shop.lake(), outline, 0, NEVER)
    assert await anext(walk) == first
    key = shop.keys.compacted_key(log.topic.topic_id, 0, 0, "u")
    both = replace(first, last_delta=second.last - first.base, key=key)
    await rename_manifest(shop, log, log.meta.chunks[0].key, set(), both, drop=second)
    with pytest.raises(Overtaken):
        await to_the_end(walk)


async def test_a_log_whose_segments_are_replaced_under_every_survey_is_missed_and_no_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await built(shop, "a", **COMPACT)
    await built(shop, "b", **COMPACT)

    async def busy(lake: Lake, outline: Outline, first: int, end: int) -> Any:
        if outline.topic.name == "a":
            raise Overtaken(outline.name, "busy")
        async for seg in follow(lake, outline, first, end):
            yield seg

    monkeypatch.setattr(due, "follow", busy)
    found = await due.find_due(shop.lake(), [("a", 0), ("b", 0)], NOW)
    assert [each.place for each in found.due] == [("b", 0)]
    assert list(found.missed) == [("a", 0)]


async def test_a_segment_is_listed_as_it_is_or_not_at_all(shop: Shop) -> None:
    log = await built(shop)
    bare = (await outline_of(shop, log)).log(())
    for seg in (log.segments[0], log.segments[9], log.segments[-1]):
        assert await is_listed(shop.lake(), bare, seg)
        assert not await is_listed(shop.lake(), bare, replace(seg, etag="another"))
        assert not await is_listed(shop.lake(), bare, replace(seg, key="own.kfs"))
    await shop.store.delete(log.meta.chunks[0].key)
    with pytest.raises(ObjectNotFound):
        await is_listed(shop.lake(), bare, log.segments[0])


async def test_who_reads_ahead_and_who_takes_the_groups_see_the_same(shop: Shop) -> None:
    log = await built(shop)
    size = 3 * max(seg.size for seg in log.segments)

    def wants(group: Group) -> bool:
        return group[0].base % 2 == 0

    expected = [group for group in groups(log.segments, size) if wants(group)]
    for turns in ("taker", "reader", "both"):
        both = Groups(follow(shop.lake(), await outline_of(shop, log), 0, NEVER), size, wants)
        ahead = both.segments()
        taken: list[Group] = []
        read: list[Seg] = []
        if turns == "reader":
            read = [seg async for seg in ahead]
        while (group := await both.next()) is not None:
            taken.append(group)
            if turns == "both":
                read += [await anext(ahead) for _ in group]
        if turns == "taker":
            read = [seg async for seg in ahead]
        assert taken == expected
        assert read == flat(expected)


def flat(some: Sequence[Group]) -> list[Seg]:
    return [seg for group in some for seg in group]


async def test_a_group_is_only_replaced_as_it_was_read(shop: Shop) -> None:
    log = await built(shop, **COMPACT)
    bare = (await outline_of(shop, log)).log(())
    first, second, third = log.segments[6:9]  # the third is in the next manifest
    both = replace(
        first,
        last_delta=third.last - first.base,
        key=shop.keys.compacted_key(log.topic.topic_id, 0, first.base, "u"),
    )
    before = await read_existing(shop.lake(), bare)
    others = (
        (first, replace(second, etag="another"), third),
        (first, third),
        (replace(first, base=first.base + 1), second, third),
    )
    for group in others:
        with pytest.raises(Overtaken):
            await publish(
                shop.lake(), bare, before, group, replace(both, last_delta=group[-1].last - first.base)
            )
    assert await followed(shop.lake(), await outline_of(shop, log)) == log.segments
    await publish(shop.lake(), bare, before, (first, second, third), both)
    assert await followed(shop.lake(), await outline_of(shop, log)) == [
        *log.segments[:6],
        both,
        *log.segments[9:],
    ]
