"""What retention would delete, and what its runs and the collections of orphans did, as plain values for JSON.

A plan says what would go under the topics' own or other limits, and which groups have not read it. Values of different
topics can be merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log, Outline, partitions_of, read_log, read_outlines, read_topics
from kafscale.lake.lag.positions import read_readers
from kafscale.lake.retention.apply import Report
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.orphans import OrphanReport
from kafscale.lake.retention.plan import OWN, Limits, PlannedDeletion, plan, start_after
from kafscale.lake.unread import Going, unread
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import Topic

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result", bound="DataclassInstance")
ORPHANS: Final = pa.schema({"topic": pa.string(), "object": pa.string(), "bytes": pa.int64()})


def report_to_json(report: Report) -> dict[str, Any]:
    return {**asdict(report), "fates": {fate.value: report.fates[fate] for fate in Fate}}


def report_from_json(values: Mapping[str, Any]) -> Report:
    """Undoes `report_to_json`."""
    fates = Counter({Fate(name): count for name, count in values["fates"].items()})
    return Report(**{**values, "fates": fates})


def merged(empty: Result, some: Iterable[Result]) -> Result:
    """One result of the same class: numbers and counters add up, lists follow each other, dicts are joined."""
    whole = {each.name: getattr(empty, each.name) for each in fields(empty)}
    for one in some:
        for name, value in whole.items():
            more = getattr(one, name)
            whole[name] = value | more if type(value) is dict else value + more
    return replace(empty, **whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSummary:
    """What a collection of orphans found and did; for the rows of `orphans`, the first of the `count`, see ORPHANS."""

    partitions: int = 0
    count: int = 0
    orphans: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0
    left: int = 0
    strange: int = 0
    failed: int = 0  # objects that should be gone and are not
    missed: dict[str, str] = field(default_factory=dict)


def summarize_orphans(found: OrphanReport) -> OrphanSummary:
    return OrphanSummary(
        partitions=found.partitions,
        count=found.count,
        orphans=[
            {"topic": each.topic.name, "object": each.key, "bytes": each.size} for each in found.orphans
        ],
        bytes=found.bytes,
        left=found.left,
        strange=found.strange,
        failed=sum(count for fate, count in found.fates.items() if not fate.is_over),
        missed=dict(found.missed),
    )


def merge_orphan_summaries(some: Iterable[OrphanSummary]) -> OrphanSummary:
    whole = merged(OrphanSummary(), some)
    whole.orphans.sort(key=lambda row: row["object"])
    return whole


LOGS_AT_ONCE: Final = 4

PLAN: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "segment": pa.int64(),
        "rule": pa.string(),
        "age_ms": pa.int64(),
        "bytes": pa.int64(),
    }
)
LOSSES: Final = pa.schema(
    {
        "group": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "committed": pa.int64(),
        "start": pa.int64(),
        "records": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """`rows` have the columns of PLAN, `losses` (see `unread`) those of LOSSES. `bytes_own`: with the topics' settings.

    `partitions` are rows of each log that loses anything: segments and bytes, where it starts, and where it would.
    `missed`: topic/partition -> why it cannot be read.
    """

    logs: int = 0
    bytes: int = 0
    bytes_own: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    partitions: list[dict[str, Any]] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)

    @property
    def starts(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> where the log would start."""
        return {_of_place(row): row["start_after"] for row in self.partitions}


async def plan_lake(lake: Lake, names: Iterable[str] | None, now_ms: int, limits: Limits = OWN) -> Planned:
    """Of these topics, or of all. A log that cannot be read is named, and the others are planned. Raises EtcdError and
    StoreError."""
    topics = await read_topics(lake, names)
    logs, missed = await _readable(lake, topics)
    doomed = plan(logs, now_ms, limits)
    partitions = by_partition(doomed)
    return Planned(
        logs=len(logs),
        bytes=bytes_of(doomed),
        bytes_own=bytes_of(plan(logs, now_ms)),
        rows=[_row(each) for each in doomed],
        losses=unread(map(_going, partitions), await read_readers(lake, topics)) if partitions else [],
        partitions=partitions,
        missed=missed,
    )


async def _readable(lake: Lake, topics: Iterable[Topic]) -> tuple[list[Log], dict[str, str]]:
    """The logs; and of those that cannot be read the name, and why."""
    missed: dict[str, str] = {}

    def pass_over(topic: Topic, partition: int, why: Exception) -> None:
        missed[f"{topic.name}/{partition}"] = str(why)

    async def one(outline: Outline) -> Log | None:
        if not outline.meta.chunks:
            return outline.log(())
        try:
            return await read_log(lake, outline.topic, outline.partition)
        except (ObjectNotFound, UnreadableValue) as damage:
            pass_over(outline.topic, outline.partition, damage)
            return None

    outlines = await read_outlines(lake, partitions_of(topics), pass_over)
    found = await gather_bounded(map(one, outlines), LOGS_AT_ONCE)
    return [log for log in found if log is not None], missed


def merge_plans(plans: Sequence[Planned]) -> Planned:
    """The plan of all of them, which are of different topics."""
    whole = merged(Planned(), plans)
    whole.rows.sort(key=_of_place)
    whole.losses.sort(key=lambda row: (row["group"], *_of_place(row)))
    whole.partitions.sort(key=_of_place)
    return whole


def bytes_of(doomed: Iterable[PlannedDeletion]) -> int:
    """Of the segments and their indexes."""
    return sum(each.segment.size + each.segment.index_size for each in doomed)


def _going(row: dict[str, Any]) -> Going:
    """Of a row of `by_partition`."""
    return Going(topic=row["topic"], partition=row["partition"], start=row["start"], end=row["start_after"])


def by_partition(doomed: Iterable[PlannedDeletion]) -> list[dict[str, Any]]:
    """A plan is in the order of its logs."""
    rows = []
    for (topic, partition), group in groupby(
        doomed, key=lambda each: (each.log.topic.name, each.log.partition)
    ):
        some = list(group)
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "segments": len(some),
                "bytes": bytes_of(some),
                "start": some[0].log.start,
                "start_after": start_after(some[0].log, some),
            }
        )
    return rows


def _of_place(row: dict[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _row(doomed: PlannedDeletion) -> dict[str, Any]:
    return {
        "topic": doomed.log.topic.name,
        "partition": doomed.log.partition,
        "segment": doomed.segment.base,
        "rule": doomed.rule.value,
        "age_ms": doomed.age_ms,
        "bytes": doomed.segment.size + doomed.segment.index_size,
    }
