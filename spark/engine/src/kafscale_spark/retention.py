"""Retention and the collection of orphans over shares of the topics, by the functions that also work without Spark.

Each share is a task that does all steps: move log starts, wait for the grace, delete. There are at most as many tasks
as run at once, so the grace passes once, and executors list and delete in parallel. The driver's clock decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from kafscale.lake.catalog import Lake, check_topics, read_topics
from kafscale.lake.retention.apply import Report, Retention
from kafscale.lake.retention.log_starts import StartsMax
from kafscale.lake.retention.orphans import Orphans
from kafscale.lake.retention.plan import OWN, Limits
from kafscale.lake.retention.report import (
    OrphanSummary,
    Planned,
    merge_orphan_summaries,
    merge_plans,
    merged,
    plan_lake,
    summarize_orphans,
)
from kafscale.runtime.settings import ServiceSettings
from pyspark.sql import SparkSession

from kafscale_spark.clusters import opened
from kafscale_spark.shares import Found, Work, in_tasks, shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A session, a cluster, and the selected topics (None: all). Its methods raise UnknownTopic."""

    spark: SparkSession
    settings: ServiceSettings
    topics: Iterable[str] | None = None

    def plan(self, now_ms: int, limits: Limits = OWN) -> Planned:
        return merge_plans(self._run(partial(_plan, now_ms, limits)))

    def retain(self, now_ms: int, grace_s: float, starts_max: StartsMax | None = None) -> Report:
        return merged(Report(), self._run(partial(_retain, now_ms, grace_s, starts_max)))

    def collect(self, grace_s: float, *, dry: bool) -> OrphanSummary:
        return merge_orphan_summaries(self._run(partial(_collect, grace_s, dry)))

    def _run(self, work: Work[list[str], Found]) -> list[Found]:
        context = self.spark.sparkContext
        given = asyncio.run(self._shares(context.defaultParallelism))
        return in_tasks(context, self.settings, work, given)

    async def _shares(self, count: int) -> list[list[str]]:
        async with opened(self.settings) as lake:
            await check_topics(lake, self.topics)
            return shares(await read_topics(lake, self.topics), count)


async def _plan(now_ms: int, limits: Limits, lake: Lake, names: list[str]) -> Planned:
    return await plan_lake(lake, names, now_ms, limits)


async def _retain(
    now_ms: int, grace_s: float, starts_max: StartsMax | None, lake: Lake, names: list[str]
) -> Report:
    run = Retention(lake, grace_s=grace_s, now_ms=lambda: now_ms, starts_max=starts_max)
    return await run.run(names)


async def _collect(grace_s: float, dry: bool, lake: Lake, names: list[str]) -> OrphanSummary:
    return summarize_orphans(await Orphans(lake, grace_s=grace_s).collect(names, dry=dry))
