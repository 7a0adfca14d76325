"""A stream of micro-batches: from offsets to spans. Planning the same batch again gives the same result.

A stream's offsets are `{"topic:partition": next}`: all offsets below `next` were read.
A batch never ends after the committed end. A limit is divided among the partitions in proportion to their backlogs.
Retention may delete records that a checkpoint has not read. That is lost data, and the query fails with a message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from kafscale.lake.catalog import Log, TopicPartition
from kafscale.runtime.settings import ServiceSettings
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafscale_spark.clusters import opened
from kafscale_spark.options import Edge, Request
from kafscale_spark.spans import Next, place_of, read_logs, spans, starts, text_of
from kafscale_spark.splits import Ask, read_split, split


class RecordsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One process keeps it for the whole query. Its methods have Spark's names."""

    def __init__(self, settings: ServiceSettings, request: Request, schema: pa.Schema) -> None:
        self._settings = settings
        self._request = request
        self._ask = Ask(schema=schema, fail_on_data_loss=request.fail_on_data_loss)
        self._target: Next | None = None
        self._latest: Next = {}
        self._begun_s = time.monotonic()

    def initialOffset(self) -> dict[str, int]:
        async def first() -> Next:
            async with opened(self._settings) as lake:
                logs = await read_logs(lake, self._request)
                return await starts(lake, logs, self._request.starting or Edge.LATEST, self._request)

        return dump(asyncio.run(first()))

    def getDefaultReadLimit(self) -> ReadLimit:
        most, least = self._request.offsets_max, self._request.offsets_min
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next batch ends; the start if there is nothing to read yet."""
        first = load(start)
        self._latest = _ends(asyncio.run(self._logs()))
        end = self._latest if self._target is None else capped(self._latest, self._target)
        waiting = sum(backlog(first, end).values())
        if not waiting or (self._is_early(waiting) and not isinstance(limit, ReadAllAvailable)):
            return dump(first)
        self._begun_s = time.monotonic()
        return dump(shared(first, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end)

    def _is_early(self, waiting: int) -> bool:
        """Whether the backlog is below minOffsetsPerTrigger. False after maxTriggerDelay and with availableNow."""
        least = self._request.offsets_min
        late = time.monotonic() - self._begun_s >= self._request.delay_max_ms / 1_000
        return least is not None and waiting < least and not late and self._target is None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ends(asyncio.run(self._logs()))

    def reportLatestOffset(self) -> dict[str, int]:
        return dump(self._latest)

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """Raises DataLoss."""
        logs = asyncio.run(self._logs())
        found = spans(logs, load(start), load(end), self._request)
        return [InputPartition(each) for each in split(found, None, self._request.target_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_split(self._settings, partition.value, self._ask)

    async def _logs(self) -> list[Log]:
        async with opened(self._settings) as lake:
            return await read_logs(lake, self._request)


def _ends(logs: Sequence[Log]) -> Next:
    return {place_of(log): log.stable_end for log in logs}


def capped(latest: Next, target: Next) -> dict[TopicPartition, int]:
    """The current ends, limited to the target of availableNow."""
    return {place: min(end, target[place]) for place, end in latest.items() if place in target}


def backlog(first: Next, end: Next) -> dict[TopicPartition, int]:
    """The backlog of each partition, in offsets."""
    return {place: end[place] - _begin(first, end, place) for place in end}


def shared(first: Next, end: Next, rows_max: int) -> dict[TopicPartition, int]:
    """Ends for at most `rows_max` offsets in total, in proportion to the backlogs (largest remainder method)."""
    waiting = backlog(first, end)
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(end)
    parts = {place: divmod(rows_max * size, total) for place, size in waiting.items()}
    left = rows_max - sum(whole for whole, _ in parts.values())
    nearest = sorted(parts, key=lambda place: (-parts[place][1], place))[:left]
    return {
        place: _begin(first, end, place) + whole + (place in nearest) for place, (whole, _) in parts.items()
    }


def _begin(first: Next, end: Next, place: TopicPartition) -> int:
    """A new partition begins at 0. So does one that ends below its read offset, because its topic was made again."""
    return first[place] if first.get(place, 0) <= end[place] and place in first else 0


def dump(offsets: Next) -> dict[str, int]:
    """Sorted, because Spark compares the text."""
    return {text_of(place): offsets[place] for place in sorted(offsets)}


def load(text: Mapping[str, Any]) -> dict[TopicPartition, int]:
    found = {}
    for name, offset in text.items():
        topic, _, partition = name.rpartition(":")
        found[topic, int(partition)] = int(offset)
    return found
