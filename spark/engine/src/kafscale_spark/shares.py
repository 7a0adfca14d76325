"""Divides work over topics or logs into tasks. Pure except for the tasks.

A task opens the cluster by itself; its input and its result are plain values. All such work is safe to repeat, because
Spark retries a task that failed or whose executor is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from kafscale.lake.catalog import Lake
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.topics import Topic
from pyspark import SparkContext

from kafscale_spark.clusters import opened

Given = TypeVar("Given")
Found = TypeVar("Found")

Work = Callable[[Lake, Given], Coroutine[Any, Any, Found]]


def shares(topics: Iterable[Topic], count: int) -> list[list[str]]:
    """Topic names in at most this number of shares, none of them empty, with about equal numbers of partitions."""
    dealt: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for topic in sorted(topics, key=lambda topic: (-topic.partitions, topic.name)):
        least = loads.index(min(loads))
        dealt[least].append(topic.name)
        loads[least] += topic.partitions
    return [share for share in dealt if share]


def in_tasks(
    context: SparkContext, settings: ServiceSettings, work: Work[Given, Found], given: Sequence[Given]
) -> list[Found]:
    """The results, one task per item, started in this order."""
    if not given:
        return []
    return context.parallelize(given, len(given)).map(partial(_in_task, settings, work)).collect()


def _in_task(settings: ServiceSettings, work: Work[Given, Found], given: Given) -> Found:
    async def run() -> Found:
        async with opened(settings) as lake:
            return await work(lake, given)

    return asyncio.run(run())
