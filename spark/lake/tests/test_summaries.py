"""The summary of a run survives JSON, and those of several runs in different topics add up to that of one."""

from __future__ import annotations

import json
from dataclasses import asdict

from kafscale.lake.retention.apply import Report, Retention
from kafscale.lake.retention.orphans import Orphans
from kafscale.lake.retention.plan import Limits
from kafscale.lake.retention.report import (
    LOSSES,
    PLAN,
    OrphanSummary,
    Planned,
    merge_orphan_summaries,
    merge_plans,
    merged,
    plan_lake,
    report_from_json,
    report_to_json,
    summarize_orphans,
)
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.slots import slot_of
from kafscale.testkit.logbuilder import records

from .shop import Shop

NOW = 100_000
NAMES = ("a", "b", "c")


async def build() -> Shop:
    """Three topics of five segments, of which a group has read 7 records; an object that nobody knows in each."""
    shop = Shop()
    for name in NAMES:
        log = await shop.topic(name, retention_ms="70000")
        for number in range(5):
            await log.append(records(5, timestamp=10_000 * (number + 1)))
        key = shop.keys.committed(slot_of("g"), "g", log.topic.topic_id, 0)
        await shop.etcd.put(key, encode_committed(CommittedOffset(offset=7, commit_ms=1)))
        await shop.store.put(shop.keys.segment_key(name, 0, 3), [b"stray"])
    return shop


async def test_plans_of_topics_add_up_to_the_plan_of_all() -> None:
    shop = await build()
    limits = Limits(retention_ms=45_000)
    whole = await plan_lake(shop.lake(), None, NOW, limits)
    parts = [await plan_lake(shop.lake(), [name], NOW, limits) for name in reversed(NAMES)]
    assert merge_plans(parts) == whole
    assert (whole.logs, len(whole.rows), len(whole.losses)) == (3, 15, 3)
    assert {row["records"] for row in whole.losses} == {18}
    assert whole.bytes > whole.bytes_own > 0
    assert [set(row) for row in (whole.rows[0], whole.losses[0])] == [set(PLAN.names), set(LOSSES.names)]
    assert Planned(**json.loads(json.dumps(asdict(whole)))) == whole


async def test_a_plan_by_the_topics_own_limits_names_the_groups_too() -> None:
    planned = await plan_lake((await build()).lake(), None, NOW)
    assert planned.bytes == planned.bytes_own
    assert len(planned.rows) == 6
    assert [(row["group"], row["topic"], row["records"]) for row in planned.losses] == [
        ("g", name, 3) for name in NAMES
    ]
    assert planned.starts == {(name, 0): 10 for name in NAMES}


async def test_runs_of_topics_add_up_to_the_run_of_all() -> None:
    shop = await build()
    before = shop.take()

    whole = await Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW).run()
    assert (whole.logs, whole.moved, whole.segments) == (3, 3, 6)
    shop.put_back(before)
    parts = [await Retention(shop.lake(), grace_s=0, now_ms=lambda: NOW).run([name]) for name in NAMES]
    assert merged(Report(), parts) == whole
    assert report_from_json(json.loads(json.dumps(report_to_json(whole)))) == whole


async def test_collections_of_topics_add_up_to_the_collection_of_all() -> None:
    shop = await build()
    whole = summarize_orphans(await Orphans(shop.lake(), grace_s=0).collect(dry=True))
    parts = [
        summarize_orphans(await Orphans(shop.lake(), grace_s=0).collect([name], dry=True)) for name in NAMES
    ]
    assert merge_orphan_summaries(parts) == whole
    assert (whole.partitions, len(whole.orphans), whole.bytes) == (3, 3, 15)
    assert OrphanSummary(**json.loads(json.dumps(asdict(whole)))) == whole
