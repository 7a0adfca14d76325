"""The tables of a lake that come from etcd and the manifests alone. No segment is opened. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from kafscale.lake.catalog import Log
from kafscale.lake.columns import TIME_MAX_MS
from kafscale.log.heads import Seg
from kafscale.storage.topics import Topic
from kafscale.wire.batches import TIMESTAMP_NONE

TIME: Final = pa.timestamp("ms", "UTC")
T = TypeVar("T")


class Columns(Generic[T]):
    """A table with a row for each item: of each column its type, and its value of an item."""

    def __init__(self, columns: Mapping[str, tuple[pa.DataType, Callable[[T], object]]]) -> None:
        self._columns = columns
        self.schema = pa.schema({name: kind for name, (kind, _) in columns.items()})

    def rows(self, items: Iterable[T]) -> list[dict[str, Any]]:
        return [{name: value(each) for name, (_, value) in self._columns.items()} for each in items]

    def table(self, items: Iterable[T]) -> pa.Table:
        return pa.Table.from_pylist(self.rows(items), schema=self.schema)


def _newest(times: Sequence[int]) -> int | None:
    return calendar_ms(max(times, default=TIMESTAMP_NONE))


def calendar_ms(time_ms: int) -> int | None:
    """None for -1 (no timestamp), and for what Python, SQL and Spark have no date for.

    Clients may send any 64 bits as the time of a record or of a commit.
    """
    return time_ms if 0 <= time_ms <= TIME_MAX_MS else None


TOPICS: Final = Columns[Topic](
    {
        "topic": (pa.string(), lambda topic: topic.name),
        "topic_id": (pa.string(), lambda topic: topic.topic_id.hex()),
        "partitions": (pa.int32(), lambda topic: topic.partitions),
        "cleanup_policy": (pa.string(), lambda topic: topic.cleanup_policy),
        "retention_ms": (pa.int64(), lambda topic: topic.retention_ms),
        "retention_bytes": (pa.int64(), lambda topic: topic.retention_bytes),
        "created": (TIME, lambda topic: topic.created_ms or None),
        "configs": (pa.map_(pa.string(), pa.string()), lambda topic: sorted(topic.configs.items())),
    }
)
PARTITIONS: Final = Columns[Log](
    {
        "topic": (pa.string(), lambda log: log.topic.name),
        "partition": (pa.int32(), lambda log: log.partition),
        "log_start": (pa.int64(), lambda log: log.start),
        "log_end": (pa.int64(), lambda log: log.end),
        "stable_end": (pa.int64(), lambda log: log.last_stable_offset),
        "segments": (pa.int64(), lambda log: len(log.segments)),
        "batches": (pa.int64(), lambda log: sum(seg.batches for seg in log.segments)),
        "bytes": (pa.int64(), lambda log: sum(seg.size for seg in log.segments)),
        "oldest": (TIME, lambda log: _newest([seg.min_ts for seg in log.segments[:1]])),
        "newest": (TIME, lambda log: _newest([seg.max_ts for seg in log.segments])),
    }
)
"""`oldest` is the timestamp of the first record of the first batch, if segments have it."""
SEGMENTS: Final = Columns[tuple[Log, Seg]](
    {
        "topic": (pa.string(), lambda of: of[0].topic.name),
        "partition": (pa.int32(), lambda of: of[0].partition),
        "base_offset": (pa.int64(), lambda of: of[1].base),
        "last_offset": (pa.int64(), lambda of: of[1].last),
        "records": (pa.int64(), lambda of: of[1].records),
        "batches": (pa.int64(), lambda of: of[1].batches),
        "bytes": (pa.int64(), lambda of: of[1].size),
        "leader_epoch": (pa.int32(), lambda of: of[1].epoch),
        "oldest": (TIME, lambda of: calendar_ms(of[1].min_ts)),
        "newest": (TIME, lambda of: calendar_ms(of[1].max_ts)),
        "committed": (TIME, lambda of: calendar_ms(of[1].created_ms)),
        "etag": (pa.string(), lambda of: of[1].etag),
    }
)


def segments_of(logs: Iterable[Log]) -> Iterator[tuple[Log, Seg]]:
    return ((log, seg) for log in logs for seg in log.segments)
