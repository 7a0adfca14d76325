"""Finds the segments that can contain a row for which a condition is true.

Arrow decides this. Each log or segment becomes an Arrow fragment with a guarantee: the known bounds of its rows. Arrow
simplifies the condition under the guarantee. A condition that does not refer to the known columns prunes nothing. No
object is opened: the fragments are only names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from kafscale.lake.batches import BATCHES
from kafscale.lake.catalog import Log
from kafscale.lake.columns import FIELDS, TIME_MAX_MS
from kafscale.lake.scan import PLACE
from kafscale.log.heads import Seg
from pyarrow.fs import LocalFileSystem

SCHEMA = pa.schema({**PLACE, **FIELDS})
_FORMAT = ds.ParquetFileFormat()
_NOWHERE = LocalFileSystem()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The bounds of the rows of some segments: offsets [first, end), in batches from `base` on, and the newest
    timestamp."""

    base: int
    first: int
    end: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A table whose rows come from segments, and the guarantee of an extent for them."""

    schema: pa.Schema
    guarantee: Callable[[Extent], pc.Expression]


def _of_records(known: Extent) -> pc.Expression:
    offset = pc.field("offset")
    return (offset >= known.first) & (offset < known.end) & _not_newer("timestamp", known)


def _of_batches(known: Extent) -> pc.Expression:
    """A batch may begin below the log start offset if it ends after it."""
    base, last = pc.field("base_offset"), pc.field("last_offset")
    placed = (base >= known.base) & (base < known.end) & (last >= known.first) & (last < known.end)
    return placed & _not_newer("max_timestamp", known)


def _not_newer(column: str, known: Extent) -> pc.Expression:
    """Timestamps outside of the calendar are null."""
    newest = pa.scalar(min(known.newest_ms, TIME_MAX_MS), FIELDS["timestamp"])
    return (pc.field(column) <= newest) | pc.field(column).is_null()


RECORDS = Subject(SCHEMA, _of_records)
HEADERS = Subject(BATCHES, _of_batches)


def prune(
    logs: Sequence[Log], condition: pc.Expression | None, subject: Subject = RECORDS
) -> list[tuple[Log, tuple[Seg, ...]]]:
    """The logs that can contain such rows, in their order, each with the segments that can."""
    if condition is None:
        return [(log, log.segments) for log in logs if log.segments]
    held = [log for log in logs if log.segments]
    chosen = possible([_of_log(log, subject) for log in held], condition, subject.schema)
    found = []
    for log in (held[number] for number in chosen):
        segments = log.between(0, log.end)
        kept = possible([_of_segment(log, seg, subject) for seg in segments], condition, subject.schema)
        if kept:
            found.append((log, tuple(segments[number] for number in kept)))
    return found


def _of_log(log: Log, subject: Subject) -> pc.Expression:
    newest = max(seg.max_ts for seg in log.segments)
    known = Extent(base=log.segments[0].base, first=log.start, end=log.end, newest_ms=newest)
    return at(log.topic.name, log.partition) & subject.guarantee(known)


def _of_segment(log: Log, seg: Seg, subject: Subject) -> pc.Expression:
    first, end = max(seg.base, log.start), min(seg.end, log.end)
    known = Extent(base=seg.base, first=first, end=end, newest_ms=seg.max_ts)
    return at(log.topic.name, log.partition) & subject.guarantee(known)


def at(topic: str, partition: int) -> pc.Expression:
    number = pa.scalar(partition, PLACE["partition"])
    return (pc.field("topic") == topic) & (pc.field("partition") == number)


def possible(guarantees: Iterable[pc.Expression], condition: pc.Expression, schema: pa.Schema) -> list[int]:
    """Under which of these guarantees the condition can be true for a row of the schema."""
    fragments = [
        _FORMAT.make_fragment(str(number), filesystem=_NOWHERE, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, _NOWHERE)
    return [int(fragment.path) for fragment in dataset.get_fragments(condition)]
