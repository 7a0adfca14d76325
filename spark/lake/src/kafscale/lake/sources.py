"""The tables of a lake, and how each is read, only as far as a query needs it.

`records` and `batches` are not copied: the condition prunes logs and segments, and the rest is read while the query
runs. Groups are read from etcd, and lag is measured, only for a query that names these tables.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.batches import BATCHES, scan_batches
from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.columns import FIELDS, Wanted, read_columns
from kafscale.lake.datasets import Asked
from kafscale.lake.group_tables import COMMITS, GROUPS, LAG, OF_HISTORY, groups_table, lag_table
from kafscale.lake.heads import Heads, check_crcs, without_aborted
from kafscale.lake.lag.measure import measure
from kafscale.lake.lag.positions import Commit, Position, read_commits, read_groups, read_positions
from kafscale.lake.lag.report import Facts, make_report
from kafscale.lake.lag.sampler import with_history
from kafscale.lake.pruning import HEADERS, SCHEMA, at, possible, prune
from kafscale.lake.scan import placed, places, read_segments, scan_segments
from kafscale.lake.tables import PARTITIONS, SEGMENTS, TOPICS, segments_of
from kafscale.log.heads import Seg
from kafscale.storage.system import wall_ms
from kafscale.wire.batches import CONTROL
from kafscale.wire.buffers import Buffer

TABLES: Final[Mapping[str, pa.Schema]] = {
    "records": SCHEMA,
    "batches": BATCHES,
    "segments": SEGMENTS.schema,
    "partitions": PARTITIONS.schema,
    "topics": TOPICS.schema,
    "groups": GROUPS,
    "commits": COMMITS.schema,
    "lag": LAG,
}

OF_CONFIGS: Final = ("cleanup_policy", "retention_ms", "retention_bytes", "configs")
"""Columns of `topics` that come from configs."""
ROWS_MAX: Final = 1 << 17
"""Rows per Arrow batch, because the topic name of each row takes memory."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader sees of groups and of configs who may not see all of them. Of topics it sees the logs."""

    groups: frozenset[str]
    configs: frozenset[str]
    """The topics whose configs it sees. In `topics`, those of others are null."""


class TableSource:
    """Reads each table of TABLES: a method for each, under its name. `seen` None: everything."""

    def __init__(self, lake: Lake, logs: Sequence[Log], seen: Seen | None = None) -> None:
        self._lake = lake
        self._logs = logs
        self._seen = seen
        self._topics = list({log.topic.name: log.topic for log in logs}.values())

    async def records(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        own = tuple(name for name in asked.columns if name in FIELDS)
        wanted = Wanted(columns=own)
        for log, segments in prune(self._logs, asked.condition):
            rows = (
                scan_segments(self._lake, log, segments, wanted)
                if own
                else scan_places(self._lake, log, segments)
            )
            async with aclosing(rows) as found:
                async for batch in found:
                    yield (placed(batch, log) if own else batch).select(asked.columns)

    async def batches(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        for log, segments in prune(self._logs, asked.condition, HEADERS):
            async with aclosing(scan_batches(self._lake, log, segments)) as found:
                async for batch in found:
                    yield batch.select(asked.columns)

    def segments(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        return _all(SEGMENTS.table(segments_of(self._logs)), asked)

    def partitions(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        return _all(PARTITIONS.table(self._logs), asked)

    def topics(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        rows = TOPICS.rows(self._topics)
        hidden = dict.fromkeys(OF_CONFIGS)
        if self._seen is not None:
            rows = [row if row["topic"] in self._seen.configs else row | hidden for row in rows]
        return _all(pa.Table.from_pylist(rows, schema=TOPICS.schema), asked)

    async def groups(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        groups = await read_groups(self._lake)
        shown = {name: group for name, group in groups.items() if self._sees(name)}
        table = groups_table(shown, await self._commits())
        async for batch in _all(table, asked):
            yield batch

    async def commits(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        async for batch in _all(COMMITS.table(await self._commits()), asked):
            yield batch

    async def lag(self, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
        found, groups = await read_positions(self._lake, self._topics)
        found = [each for each in found if self._sees(each.group)]
        if asked.condition is not None:
            kept = possible([_of_position(each) for each in found], asked.condition, LAG)
            found = [found[number] for number in kept]
        logs = await self._reaching(found)
        now_ms = wall_ms()
        facts = Facts(
            cluster=self._lake.keys.namespace,
            at_ms=now_ms,
            logs=logs,
            positions=found,
            lags=await measure(self._lake, logs, found, now_ms),
            groups=groups,
        )
        if OF_HISTORY.intersection(asked.columns):
            facts = await with_history(self._lake, facts)
        async for batch in _all(lag_table(make_report(facts)), asked):
            yield batch

    async def _reaching(self, found: Sequence[Position]) -> Sequence[Log]:
        """The logs, those of a topic read again if a group has committed beyond an end that was read before."""
        ends = {(log.topic.name, log.partition): log.end for log in self._logs}
        grown = {
            each.topic
            for each in found
            if each.offset is not None
            and (end := ends.get((each.topic, each.partition))) is not None
            and each.offset.offset > end
        }
        if not grown:
            return self._logs
        rest = [log for log in self._logs if log.topic.name not in grown]
        return [*rest, *await read_lake(self._lake, grown)]

    async def _commits(self) -> list[Commit]:
        return [each for each in await read_commits(self._lake, self._topics) if self._sees(each.group)]

    def _sees(self, group: str) -> bool:
        return self._seen is None or group in self._seen.groups


def _of_position(position: Position) -> pc.Expression:
    """The columns of a row of `lag` that are known before the lag is measured."""
    committed = pc.field("committed")
    known = committed.is_null() if position.offset is None else committed == position.offset.offset
    return (pc.field("group_id") == position.group) & at(position.topic, position.partition) & known


async def _all(table: pa.Table, asked: Asked) -> AsyncGenerator[pa.RecordBatch, None]:
    for batch in table.select(asked.columns).to_batches():
        yield batch


async def scan_places(lake: Lake, log: Log, segments: Iterable[Seg]) -> AsyncGenerator[pa.RecordBatch, None]:
    """A row with topic and partition for each record that `scan_segments` would return."""
    aborted = log.aborted
    async with aclosing(read_segments(lake, log, segments, first=log.start)) as found:
        async for _, body, heads in found:
            left = count_records(body, without_aborted(heads, aborted), log.start, log.stable_end)
            while left:
                rows = min(left, ROWS_MAX)
                yield places(log, rows)
                left -= rows


def count_records(segment: Buffer, heads: Heads, first: int, end: int) -> int:
    """The number of records of these batches in [first, end). Transaction markers do not count."""
    heads = heads[(heads["attributes"] & CONTROL) == 0]
    last = heads["base_offset"] + heads["last_offset_delta"]
    inside = (heads["base_offset"] >= first) & (last < end)
    check_crcs(segment, heads[inside])
    across = heads[~inside]
    opened = read_columns(segment, across, Wanted(columns=("offset",), first=first, end=end))
    whole = int(heads["records"][inside].sum())
    return whole + sum(int(batch.num_rows) for batch in opened)
