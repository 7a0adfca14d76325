"""Compaction over executors: one task per log that is due, the dirtiest first. It uses the round of the local engine.

A task reads its log again, so a retried task, or one after another round, continues from the current state. It
publishes by one compare-and-swap. The driver gets the list of replaced objects, waits for one grace and deletes them.
Under a budget of bytes per second there are as many tasks as run at once, each with its part of the budget and of the
logs, so the parts never add up to more, however many executors join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kafscale.lake.catalog import Lake, TopicPartition, check_topics
from kafscale.lake.compaction.due import due_plan
from kafscale.lake.compaction.report import DuePlan, Summary, summarize
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.lake.retention.deletes import Condemned, Fate, delete_all
from kafscale.lake.retention.report import merged
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.system import wall_ms
from pyspark import SparkContext

from kafscale_spark.clusters import opened
from kafscale_spark.shares import in_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A task's logs, one after the other, and the bytes per second that it may read and write."""

    places: tuple[TopicPartition, ...]
    io_bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A task's results, and the objects that it replaced."""

    summary: Summary
    replaced: tuple[Condemned, ...]


def turns(places: Sequence[TopicPartition], io_bytes_per_s: int | None, at_once: int) -> list[Turn]:
    """One turn per place, in order; with a budget, the places are dealt to as many turns as run at once. Pure."""
    if io_bytes_per_s is None:
        return [Turn(places=(place,)) for place in places]
    count = min(len(places), at_once, io_bytes_per_s)
    return [
        Turn(places=tuple(places[number::count]), io_bytes_per_s=io_bytes_per_s // count)
        for number in range(count)
    ]


def plan(settings: ServiceSettings, names: Iterable[str] | None) -> DuePlan:
    """The logs that are due, the dirtiest first. Raises UnknownTopic."""
    return asyncio.run(_plan(settings, names))


def compact(
    context: SparkContext,
    settings: ServiceSettings,
    names: Iterable[str] | None,
    io_bytes_per_s: int | None,
    grace_s: float,
) -> Summary:
    """Raises UnknownTopic, EtcdError and StoreError, and Spark's error for a failed task."""
    given = turns(plan(settings, names).places, io_bytes_per_s, context.defaultParallelism)
    done = in_tasks(context, settings, take_turn, given)
    replaced = [condemned for each in done for condemned in each.replaced]
    left = asyncio.run(_delete(settings, replaced, grace_s)) if replaced else 0
    return replace(merged(Summary(), [each.summary for each in done]), objects_left=left)


async def take_turn(lake: Lake, turn: Turn) -> Done:
    """A task's work. Raises EtcdError and StoreError if the logs cannot be read."""
    report = await Round(
        lake, Bounds(io_bytes_per_s=turn.io_bytes_per_s, grace_s=None), lambda *_: None
    ).over(turn.places)
    return Done(summary=summarize(report), replaced=report.replaced)


async def _plan(settings: ServiceSettings, names: Iterable[str] | None) -> DuePlan:
    async with opened(settings) as lake:
        await check_topics(lake, names)
        return await due_plan(lake, names, wall_ms())


async def _delete(settings: ServiceSettings, replaced: Sequence[Condemned], grace_s: float) -> int:
    """Deletes objects. Returns how many could not be deleted; the collection of orphans finds those."""
    await asyncio.sleep(grace_s)
    async with opened(settings) as lake:
        return (await delete_all(lake, replaced)).count(Fate.FAILED)
