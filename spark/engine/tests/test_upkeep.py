"""Retention, orphans and compaction over tasks do what the same functions do without Spark, also beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.columns import Wanted
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.lake.retention.orphans import Orphans
from kafscale.lake.retention.plan import Limits
from kafscale.lake.retention.report import PLAN, plan_lake
from kafscale.lake.scan import scan
from kafscale.lake.unknown import UnknownTopic
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, records
from kafscale.wire.records import records_in
from kafscale_spark.clusters import settings_of
from kafscale_spark.compaction import Turn, compact, plan, take_turn, turns
from kafscale_spark.jobs import retention_what_if
from kafscale_spark.jobs.program import run
from kafscale_spark.options import parse
from kafscale_spark.retention import Job
from kafscale_spark.shares import in_tasks, shares
from lakes import World
from pyspark.sql import SparkSession

NOW_MS = 60_000
KEPT_MS = 35_000
COMPACTED = {"cleanup_policy": "compact"}
KEYS = 10
Row = tuple[int, bytes | None, bytes | None]


def topic(name: str, partitions: int) -> Topic:
    return Topic(name=name, topic_id=name.encode().ljust(16, b"."), partitions=partitions)  # type: ignore[arg-type]


def test_topics_are_shared_out_by_their_partitions_and_no_share_is_empty() -> None:
    some = [topic("a", 6), topic("b", 1), topic("c", 3), topic("d", 2)]
    assert shares(some, 2) == [["a"], ["c", "d", "b"]]
    assert shares(some, 9) == [["a"], ["c"], ["d"], ["b"]]
    assert shares([], 3) == []


def test_a_log_is_a_turn_and_a_budget_is_never_exceeded_by_its_parts() -> None:
    places = [("t", number) for number in range(5)]
    assert turns(places, None, 2) == [Turn(places=(place,)) for place in places]
    shared = turns(places, 1_001, 2)
    assert [each.places for each in shared] == [(places[0], places[2], places[4]), (places[1], places[3])]
    for budget, at_once in ((1_001, 2), (1_000_000, 64), (3, 64), (1, 2)):
        rates = [each.io_bytes_per_s or 0 for each in turns(places, budget, at_once)]
        assert min(rates) > 0
        assert sum(rates) <= budget
        assert sorted(place for each in turns(places, budget, at_once) for place in each.places) == places
    assert turns([], 1_000, 2) == []


async def test_retention_by_tasks_is_the_plan_of_the_lake_then_its_run(
    world: World, spark: SparkSession
) -> None:
    await world.filled("orders", partitions=2, retention_ms=str(KEPT_MS))
    await world.filled("bills", retention_ms="-1")
    job = Job(spark=spark, settings=settings_of(parse(world.options)))
    planned = await asyncio.to_thread(job.plan, NOW_MS)
    assert planned == await plan_lake(world.lake, None, NOW_MS)
    frame = spark.createDataFrame(pa.Table.from_pylist(planned.rows, PLAN))
    assert frame.columns == PLAN.names
    assert [tuple(row)[:5] for row in frame.collect()] == [
        ("orders", number, segment, "time", age)
        for number in (0, 1)
        for segment, age in ((0, 51_000), (10, 41_000))
    ]
    what_if = await asyncio.to_thread(job.plan, NOW_MS, Limits(retention_ms=15_000))
    assert len(what_if.rows) == 12
    assert what_if.bytes > what_if.bytes_own == planned.bytes
    some = await asyncio.to_thread(job.retain, NOW_MS, 0.0, {("orders", 1): 10})
    assert (some.moved, some.segments) == (1, 1), "no log starts later than was agreed"
    done = await asyncio.to_thread(job.retain, NOW_MS, 0.0)
    assert (done.logs, done.moved, done.segments, done.bytes) == (3, 2, 3, planned.bytes - some.bytes)
    assert not done.missed
    assert [log.start for log in await read_lake(world.lake)] == [0, 20, 20]
    assert len(world.segments()) == 11
    assert (await asyncio.to_thread(job.plan, NOW_MS)).rows == []
    again = await asyncio.to_thread(job.retain, NOW_MS, 0.0)
    assert (again.moved, again.segments, again.left) == (0, 0, 0)


async def test_orphans_of_chosen_topics_are_shown_and_then_gone(world: World, spark: SparkSession) -> None:
    await world.filled("orders", segments=2)
    await world.filled("bills", segments=2)
    for name in ("orders", "bills"):
        key = world.lake.keys.segment_key(name, 0, 5)
        await world.lake.store.put(key, [b"left behind"])
    job = Job(spark=spark, settings=settings_of(parse(world.options)), topics=["orders"])
    shown = await asyncio.to_thread(job.collect, 0.0, dry=True)
    key = world.lake.keys.segment_key("orders", 0, 5)
    assert shown.orphans == [{"topic": "orders", "object": key, "bytes": 11}]
    assert len(world.segments()) == 6
    assert (await asyncio.to_thread(job.collect, 0.0, dry=False)).orphans == shown.orphans
    assert len(world.segments()) == 5
    assert (await asyncio.to_thread(job.collect, 0.0, dry=False)).orphans == []


async def compacted_topic(world: World, name: str, partitions: int) -> Sequence[LogBuilder]:
    """The same keys in each of six segments, of which the newest is never touched."""
    logs = await world.topic(name, partitions=partitions, **COMPACTED)
    for log in logs:
        for number in range(6):
            await log.append(records(KEYS, label=f"{number}-"))
        await log.checkpoint(keep=1)
    return logs


def produced(log: LogBuilder) -> list[Row]:
    return [(each.offset, each.key, each.value) for batch in log.batches for each in records_in(batch.data)]


def kept(log: LogBuilder) -> list[Row]:
    """What is left once all but the newest segment was compacted, by a walk with a dict."""
    reach = log.segments[-1].base
    newest = {key: offset for offset, key, _ in produced(log) if offset < reach}
    return [row for row in produced(log) if row[0] >= reach or row[0] == newest[row[1]]]


async def read(world: World, log: LogBuilder) -> list[Row]:
    logs = await read_lake(world.lake, [log.topic.name])
    found: list[Row] = []
    async for batch in scan(world.lake, logs[log.partition], Wanted()):
        found += zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True)
    return found


async def nothing_is_left_over(world: World) -> None:
    assert (await asyncio.to_thread(plan, settings_of(parse(world.options)), None)).rows == []
    assert (await Orphans(world.lake, grace_s=0).collect(dry=True)).orphans == []


async def test_each_log_is_compacted_by_a_task_the_dirtiest_first(world: World, spark: SparkSession) -> None:
    settings = settings_of(parse(world.options))
    logs = await compacted_topic(world, "users", 3)
    due = await asyncio.to_thread(plan, settings, None)
    assert [(row["topic"], row["partition"], row["reason"]) for row in due.rows] == [
        ("users", number, "dirty ratio") for number in range(3)
    ]
    done = await asyncio.to_thread(compact, spark.sparkContext, settings, None, 10_000_000, 0.0)
    assert sorted(row["partition"] for row in done.rows) == [0, 1, 2]
    assert {(row["records"], row["records_after"], row["trouble"]) for row in done.rows} == {(50, 10, None)}
    assert (done.uncleanable, done.objects_left) == (0, 0)
    for log in logs:
        assert await read(world, log) == kept(log)
    await nothing_is_left_over(world)


async def test_compaction_beside_another_round_of_the_same_logs_does_no_harm(
    world: World, spark: SparkSession
) -> None:
    settings = settings_of(parse(world.options))
    logs = [*await compacted_topic(world, "users", 6), *await compacted_topic(world, "states", 2)]
    job = asyncio.create_task(
        asyncio.to_thread(compact, spark.sparkContext, settings, None, None, 0.0), name="job"
    )
    rounds = 0
    while not job.done():
        # As slow as this it is still at work when the tasks come, and so is its next round.
        done = await Round(world.lake, Bounds(io_bytes_per_s=4_000, grace_s=0), lambda *_: None).run()
        assert not done.uncleanable
        rounds += 1
    assert rounds
    assert (await job).uncleanable == 0
    for log in logs:
        assert await read(world, log) == kept(log)
    await nothing_is_left_over(world)


async def test_a_task_that_is_tried_again_finds_its_work_done(world: World) -> None:
    (log,) = await compacted_topic(world, "users", 1)
    turn = Turn(places=(("users", 0), ("gone", 0)))
    first = await take_turn(world.lake, turn)
    assert [row["records_after"] for row in first.summary.rows] == [KEYS]
    assert first.replaced, "the caller of the turn deletes them"
    assert len(world.segments()) == 7
    again = await take_turn(world.lake, turn)
    assert (again.summary.rows, again.replaced) == ([], ())
    assert await read(world, log) == kept(log)


async def test_what_a_task_cannot_read_ends_the_job_with_its_sentence(
    world: World, spark: SparkSession
) -> None:
    async def missing(lake: Lake, key: str) -> bytes:
        return await lake.store.get(key)

    def main() -> None:
        in_tasks(spark.sparkContext, settings_of(parse(world.options)), missing, ["a/manifest"])

    with pytest.raises(SystemExit) as ending:
        await asyncio.to_thread(run, main)
    assert "manifest" in str(ending.value.code)
    assert "Traceback" not in str(ending.value.code)


async def test_a_topic_that_does_not_exist_ends_a_job(world: World, spark: SparkSession) -> None:
    await world.filled("orders", segments=1)
    settings = settings_of(parse(world.options))
    job = Job(spark=spark, settings=settings, topics=["orders", "nowhere"])
    for work in (
        lambda: job.plan(NOW_MS),
        lambda: job.retain(NOW_MS, 0.0),
        lambda: job.collect(0.0, dry=True),
        lambda: plan(settings, ["nowhere"]),
    ):
        with pytest.raises(UnknownTopic, match="topic 'nowhere' does not exist"):
            await asyncio.to_thread(work)


def test_what_if_needs_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        retention_what_if.main(["--topic", "orders"])
    assert "give --retention-ms or --retention-bytes" in capsys.readouterr().err
