"""What is due for compaction, what a round did, and what it could not do. Values only.

A `Summary` has plain values that JSON holds, and summaries of several rounds add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.compaction.plan import Candidate
from kafscale.lake.retention.deletes import Condemned
from kafscale.lake.tables import Columns
from kafscale.log.heads import Seg
from kafscale.log.meta_swap import Overtaken


@dataclass(slots=True, kw_only=True)
class Extent:
    segments: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, segments: Sequence[Seg]) -> None:
        self.segments += len(segments)
        self.records += sum(seg.records for seg in segments)
        self.bytes += sum(seg.size for seg in segments)


@dataclass(slots=True, kw_only=True)
class Tally:
    """Of the segments of one log that were looked at."""

    before: Extent = field(default_factory=Extent)
    after: Extent = field(default_factory=Extent)
    groups: int = 0  # published

    def replaced(self, group: Sequence[Seg], by: Seg) -> None:
        self.before.add(group)
        self.after.add([by])
        self.groups += 1

    def kept(self, group: Sequence[Seg]) -> None:
        self.before.add(group)
        self.after.add(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one log that was due. `finished`: the round's time was enough for the whole pass."""

    candidate: Candidate
    tally: Tally
    took_ms: int
    trouble: BaseException | None
    finished: bool = True

    @property
    def is_over(self) -> bool:
        """Nothing more to do in this round."""
        return self.finished or self.trouble is not None

    @property
    def got_on(self) -> bool:
        return self.tally.before.segments > 0 or isinstance(self.trouble, Overtaken)

    @property
    def uncleanable(self) -> bool:
        """A failure that needs attention: not only that another change came first."""
        return self.trouble is not None and not isinstance(self.trouble, Overtaken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`due`: how many logs were. `missed`: those that cannot be read.

    `delay_ms`: of the log whose dirty records wait longest past `max.compaction.lag.ms`.

    `replaced`: what the caller has to delete after a grace; empty if the round has deleted it itself.
    """

    outcomes: tuple[Outcome, ...]
    due: int
    delay_ms: int
    objects_left: (
        int  # replaced and not deleted, because the store failed: the collection of orphans finds them
    )
    replaced: tuple[Condemned, ...] = ()
    missed: Mapping[tuple[str, int], BaseException] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """Logs that stay due only because the time was not enough."""
        return self.due - sum(each.is_over for each in self.outcomes)

    @property
    def stands_still(self) -> bool:
        """Logs were due, and none of them advanced, neither by this round nor by another."""
        return self.due > 0 and not any(each.got_on for each in self.outcomes)

    @property
    def uncleanable(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.outcomes if each.uncleanable)

    @property
    def longest_ms(self) -> int:
        return max((each.took_ms for each in self.outcomes), default=0)

    @property
    def bytes_before(self) -> int:
        return sum(each.tally.before.bytes for each in self.outcomes)

    @property
    def bytes_after(self) -> int:
        return sum(each.tally.after.bytes for each in self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePlan:
    """What a round would compact now. `rows` have the columns of DUE.

    `losses`: rows of `unread`. Of their records, those go that a later record of the same key replaces.
    `missed`: topic/partition -> why it cannot be read. `places`: (topic, partition) of both, for the round.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)
    places: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`rows` have the columns of DONE."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    uncleanable: int = 0
    objects_left: int = 0


DUE: Final = Columns[Candidate](
    {
        "topic": (pa.string(), lambda due: due.log.topic.name),
        "partition": (pa.int32(), lambda due: due.log.partition),
        "reason": (pa.string(), lambda due: due.reason),
        "dirty_ratio": (pa.float64(), lambda due: round(due.ratio, 3)),
        "delay_ms": (pa.int64(), lambda due: due.delay_ms),
        "clean_segments": (pa.int64(), lambda due: due.clean.segments),
        "clean_bytes": (pa.int64(), lambda due: due.clean.bytes),
        "dirty_segments": (pa.int64(), lambda due: due.dirty.segments),
        "dirty_bytes": (pa.int64(), lambda due: due.dirty.bytes),
    }
)
DONE: Final = Columns[Outcome](
    {
        "topic": (pa.string(), lambda done: done.candidate.log.topic.name),
        "partition": (pa.int32(), lambda done: done.candidate.log.partition),
        "reason": (pa.string(), lambda done: done.candidate.reason),
        "dirty_ratio": (pa.float64(), lambda done: round(done.candidate.ratio, 3)),
        "segments": (pa.int64(), lambda done: done.tally.before.segments),
        "segments_after": (pa.int64(), lambda done: done.tally.after.segments),
        "records": (pa.int64(), lambda done: done.tally.before.records),
        "records_after": (pa.int64(), lambda done: done.tally.after.records),
        "bytes": (pa.int64(), lambda done: done.tally.before.bytes),
        "bytes_after": (pa.int64(), lambda done: done.tally.after.bytes),
        "took_ms": (pa.int64(), lambda done: done.took_ms),
        "trouble": (
            pa.string(),
            lambda done: None if done.trouble is None else str(done.trouble) or repr(done.trouble),
        ),
    }
)


def summarize(report: Report) -> Summary:
    return Summary(
        rows=DONE.rows(report.outcomes),
        uncleanable=len(report.uncleanable) + len(report.missed),
        objects_left=report.objects_left,
    )
