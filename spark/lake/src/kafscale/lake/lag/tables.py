"""A lag report as Arrow and Parquet. Pure but for the file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from kafscale.lake.lag.report import Report
from kafscale.lake.tables import TIME

PARTITIONS: Final = pa.schema(
    {
        "cluster": pa.string(),
        "ts": TIME,
        "group_id": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "status": pa.string(),
        "records": pa.int64(),
        "bytes": pa.int64(),
        "time_ms": pa.int64(),
        "lost": pa.int64(),
        "ahead": pa.int64(),
        "at_risk": pa.bool_(),
        "expires_in_ms": pa.int64(),
        "expires_by_size_ms": pa.int64(),
        "eta_ms": pa.int64(),
        "consume_per_s": pa.float64(),
        "produce_per_s": pa.float64(),
        "net_per_s": pa.float64(),
        "committed": pa.int64(),
        "log_start": pa.int64(),
        "log_end": pa.int64(),
        "committed_ms": pa.int64(),
        "member": pa.string(),
        "client": pa.string(),
        "host": pa.string(),
        "complete": pa.float64(),
    }
)
"""The fields of PartitionRow, behind the cluster and the time of the report."""


def partitions_table(report: Report) -> pa.Table:
    rows = [
        {
            "cluster": report.cluster,
            "ts": report.at_ms,
            "group_id": row.group,
            **asdict(row),
            "status": row.status,
        }
        for row in report.partitions
    ]
    return pa.Table.from_pylist(rows, schema=PARTITIONS)


def write_partitions(report: Report, path: Path) -> None:
    """Raises OSError."""
    pq.write_table(partitions_table(report), path, compression="zstd")
