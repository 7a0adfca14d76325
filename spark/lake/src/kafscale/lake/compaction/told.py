"""What is due for compaction, and what a round did, as plain values that JSON holds; several rounds add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.compaction.plan import Candidate
from kafscale.lake.compaction.report import Outcome, Report

DUE: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "reason": pa.string(),
        "dirty_ratio": pa.float64(),
        "delay_ms": pa.int64(),
        "clean_segments": pa.int64(),
        "clean_bytes": pa.int64(),
        "dirty_segments": pa.int64(),
        "dirty_bytes": pa.int64(),
    }
)
DONE: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "reason": pa.string(),
        "dirty_ratio": pa.float64(),
        "segments": pa.int64(),
        "segments_after": pa.int64(),
        "records": pa.int64(),
        "records_after": pa.int64(),
        "bytes": pa.int64(),
        "bytes_after": pa.int64(),
        "took_ms": pa.int64(),
        "trouble": pa.string(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`rows` have the columns of DONE."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    uncleanable: int = 0
    objects_left: int = 0


def told(report: Report) -> Told:
    return Told(
        rows=[_done_row(each) for each in report.outcomes],
        uncleanable=len(report.uncleanable) + len(report.missed),
        objects_left=report.objects_left,
    )


def joined(some: Sequence[Told]) -> Told:
    return Told(
        rows=[row for each in some for row in each.rows],
        uncleanable=sum(each.uncleanable for each in some),
        objects_left=sum(each.objects_left for each in some),
    )


def due_rows(candidates: Iterable[Candidate]) -> list[dict[str, Any]]:
    """With the columns of DUE."""
    return [_due_row(each) for each in candidates]


def _due_row(candidate: Candidate) -> dict[str, Any]:
    return {
        "topic": candidate.log.topic.name,
        "partition": candidate.log.partition,
        "reason": candidate.reason,
        "dirty_ratio": round(candidate.ratio, 3),
        "delay_ms": candidate.delay_ms,
        "clean_segments": candidate.clean.segments,
        "clean_bytes": candidate.clean.bytes,
        "dirty_segments": candidate.dirty.segments,
        "dirty_bytes": candidate.dirty.bytes,
    }


def _done_row(outcome: Outcome) -> dict[str, Any]:
    before, after = outcome.tally.before, outcome.tally.after
    return {
        "topic": outcome.candidate.log.topic.name,
        "partition": outcome.candidate.log.partition,
        "reason": outcome.candidate.reason,
        "dirty_ratio": round(outcome.candidate.ratio, 3),
        "segments": before.segments,
        "segments_after": after.segments,
        "records": before.records,
        "records_after": after.records,
        "bytes": before.bytes,
        "bytes_after": after.bytes,
        "took_ms": outcome.took_ms,
        "trouble": None if outcome.trouble is None else str(outcome.trouble) or repr(outcome.trouble),
    }
