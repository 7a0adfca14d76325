"""Rows of what a dump shows, for tables and for JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafscale.cli.terminal import plain, report

if TYPE_CHECKING:
    from kafscale.operations.dump.read import Batch
    from kafscale.wire.records import Record

BATCH_COLUMNS = (
    "position",
    "size",
    "offset",
    "last_offset",
    "records",
    "leader_epoch",
    "codec",
    "crc",
    "max_time",
)
RECORD_COLUMNS = ("offset", "time", "key", "value", "headers")


def batch_row(batch: Batch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": batch.position,
        "size": header.size,
        "offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "leader_epoch": header.partition_leader_epoch,
        "codec": batch.codec,
        "crc": "right" if batch.is_whole else "wrong",
        "max_time": time_of(header.max_timestamp),
    }


def rest_of(batch: Batch) -> dict[str, Any]:
    """Fields for which a table has no room."""
    header = batch.header
    return {
        "crc32c": header.crc,
        "base_time": time_of(header.base_timestamp),
        "is_log_append_time": header.is_log_append_time,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
    }


def record_row(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "time": time_of(record.timestamp),
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": [{"key": key, "value": plain(value)} for key, value in record.headers],
    }


def time_of(time_ms: int) -> str | None:
    """ISO 8601; None if there is no time, the number if it is outside the calendar."""
    if time_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def print_problems(problems: list[str]) -> None:
    for problem in problems:
        report(f"PROBLEM {problem}")
    if not problems:
        report("whole: every checksum is right")
