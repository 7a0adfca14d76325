"""The tables of a lake that come from etcd and the manifests alone. No segment is opened. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
from kafscale.lake.catalog import Log
from kafscale.lake.columns import TIME_MAX_MS
from kafscale.storage.topics import Topic
from kafscale.wire.batches import TIMESTAMP_NONE

TIME: Final = pa.timestamp("ms", "UTC")
TOPICS: Final = pa.schema(
    {
        "topic": pa.string(),
        "topic_id": pa.string(),
        "partitions": pa.int32(),
        "cleanup_policy": pa.string(),
        "retention_ms": pa.int64(),
        "retention_bytes": pa.int64(),
        "created": TIME,
        "configs": pa.map_(pa.string(), pa.string()),
    }
)
PARTITIONS: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "log_start": pa.int64(),
        "log_end": pa.int64(),
        "segments": pa.int64(),
        "batches": pa.int64(),
        "bytes": pa.int64(),
        "oldest": TIME,
        "newest": TIME,
    }
)
SEGMENTS: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "base_offset": pa.int64(),
        "last_offset": pa.int64(),
        "records": pa.int64(),
        "batches": pa.int64(),
        "bytes": pa.int64(),
        "leader_epoch": pa.int32(),
        "oldest": TIME,
        "newest": TIME,
        "committed": TIME,
        "etag": pa.string(),
    }
)


def topics_table(topics: Iterable[Topic]) -> pa.Table:
    rows = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id.hex(),
            "partitions": topic.partitions,
            "cleanup_policy": topic.cleanup_policy,
            "retention_ms": topic.retention_ms,
            "retention_bytes": topic.retention_bytes,
            "created": topic.created_ms or None,
            "configs": sorted(topic.configs.items()),
        }
        for topic in topics
    ]
    return pa.Table.from_pylist(rows, schema=TOPICS)


def partitions_table(logs: Iterable[Log]) -> pa.Table:
    """`oldest` is the timestamp of the first record of the first batch, if segments have it."""
    rows = [
        {
            "topic": log.topic.name,
            "partition": log.partition,
            "log_start": log.start,
            "log_end": log.end,
            "segments": len(log.segments),
            "batches": sum(seg.batches for seg in log.segments),
            "bytes": sum(seg.size for seg in log.segments),
            "oldest": _newest([seg.min_ts for seg in log.segments[:1]]),
            "newest": _newest([seg.max_ts for seg in log.segments]),
        }
        for log in logs
    ]
    return pa.Table.from_pylist(rows, schema=PARTITIONS)


def segments_table(logs: Iterable[Log]) -> pa.Table:
    rows = [
        {
            "topic": log.topic.name,
            "partition": log.partition,
            "base_offset": seg.base,
            "last_offset": seg.last,
            "records": seg.records,
            "batches": seg.batches,
            "bytes": seg.size,
            "leader_epoch": seg.epoch,
            "oldest": calendar_ms(seg.min_ts),
            "newest": calendar_ms(seg.max_ts),
            "committed": calendar_ms(seg.created_ms),
            "etag": seg.etag,
        }
        for log in logs
        for seg in log.segments
    ]
    return pa.Table.from_pylist(rows, schema=SEGMENTS)


def _newest(times: Sequence[int]) -> int | None:
    return calendar_ms(max(times, default=TIMESTAMP_NONE))


def calendar_ms(time_ms: int) -> int | None:
    """None for -1 (no timestamp), and for what Python, SQL and Spark have no date for.

    Clients may send any 64 bits as the time of a record or of a commit.
    """
    return time_ms if 0 <= time_ms <= TIME_MAX_MS else None
