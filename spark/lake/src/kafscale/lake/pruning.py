"""Which segments can hold a row for which a condition is true.

Arrow decides it: a log or a segment is a fragment whose guarantee says what is known of all of its rows, and Arrow
simplifies the condition under that guarantee. So every condition that Arrow can say prunes as far as it can, and
one that says nothing of the known columns prunes nothing. Nothing is opened for it: the fragments are names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from kafscale.lake.catalog import Log
from kafscale.lake.columns import FIELDS
from kafscale.lake.scan import PLACE
from kafscale.storage.heads import Seg
from pyarrow.fs import LocalFileSystem

SCHEMA = pa.schema({**PLACE, **FIELDS})
_FORMAT = ds.ParquetFileFormat()
_NOWHERE = LocalFileSystem()
_TIME = FIELDS["timestamp"]


def prune(logs: Sequence[Log], condition: pc.Expression | None) -> list[tuple[Log, tuple[Seg, ...]]]:
    """The logs that can hold such rows, in their order, with the segments that can."""
    if condition is None:
        return [(log, log.segments) for log in logs if log.segments]
    chosen = _possible([_of_log(log) for log in logs], condition)
    found = []
    for log in (logs[number] for number in chosen):
        segments = log.between(0, log.end)
        possible = _possible([_of_segment(log, seg) for seg in segments], condition)
        if possible:
            found.append((log, tuple(segments[number] for number in possible)))
    return found


def _of_log(log: Log) -> pc.Expression:
    newest = max((seg.max_ts for seg in log.segments), default=-1)
    return _place(log) & _rows(log.start, log.end, newest)


def _of_segment(log: Log, seg: Seg) -> pc.Expression:
    return _place(log) & _rows(max(seg.base, log.start), min(seg.end, log.end), seg.max_ts)


def _place(log: Log) -> pc.Expression:
    partition = pa.scalar(log.partition, PLACE["partition"])
    return (pc.field("topic") == log.topic.name) & (pc.field("partition") == partition)


def _rows(first: int, end: int, newest_ms: int) -> pc.Expression:
    offset = pc.field("offset")
    return (offset >= first) & (offset < end) & (pc.field("timestamp") <= pa.scalar(newest_ms, _TIME))


def _possible(guarantees: Iterable[pc.Expression], condition: pc.Expression) -> list[int]:
    fragments = [
        _FORMAT.make_fragment(str(number), filesystem=_NOWHERE, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, SCHEMA, _FORMAT, _NOWHERE)
    return [int(fragment.path) for fragment in dataset.get_fragments(condition)]
