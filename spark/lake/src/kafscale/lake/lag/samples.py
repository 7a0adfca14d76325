"""Samples of lag: a row for every position of a group, at one moment; and SQL over them (`ask`). Pure.

A sample is written whole at the first moment of every five minutes. Between those, only changed rows are written. So
the last row of a partition is its current one, and an overview needs only the whole samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.catalog import Log, by_place
from kafscale.lake.lag.owners import GroupPartition, Owner
from kafscale.lake.lag.positions import Position
from kafscale.lake.tables import TIME, calendar_ms

WHOLE_EVERY_MS: Final = 300_000
SAMPLES: Final = pa.schema(
    {
        "ts": TIME,
        "group_id": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "committed": pa.int64(),
        "commit_ts": TIME,
        "log_start": pa.int64(),
        "log_end": pa.int64(),
        "stable_end": pa.int64(),
        "lag": pa.int64(),
        "member": pa.string(),
        "client": pa.string(),
        "host": pa.string(),
    }
)
"""`lag` is what is left to read of what is still there, to `log_end`. A place without a member has none of the last
three, and one without a committed offset has neither `committed` nor `commit_ts`. Files from before transactions have
no `stable_end`."""
PLACE: Final = ("group_id", "topic", "partition")


class Kind(StrEnum):
    WHOLE = "whole"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    kind: Kind
    rows: pa.Table


@dataclass(slots=True)
class Memory:
    """What the sampler has written last: rows by place, and when all of them were. It is as large as one sample."""

    rows: Mapping[GroupPartition, tuple[Any, ...]] = field(default_factory=dict)
    whole_ms: int | None = None


def sample(
    logs: Iterable[Log], positions: Sequence[Position], owners: Mapping[GroupPartition, Owner], now_ms: int
) -> pa.Table:
    """Every position in a partition that exists, in their order."""
    places = by_place(logs)
    rows = []
    for each in positions:
        log = places.get((each.topic, each.partition))
        if log is None:
            continue
        owner = owners.get((each.group, each.topic, each.partition))
        committed = each.offset.offset if each.offset is not None else None
        rows.append(
            {
                "ts": now_ms,
                "group_id": each.group,
                "topic": each.topic,
                "partition": each.partition,
                "committed": committed,
                "commit_ts": calendar_ms(each.offset.commit_ms) if each.offset is not None else None,
                "log_start": log.start,
                "log_end": log.end,
                "stable_end": log.last_stable_offset,
                "lag": max(0, log.end - max(log.start if committed is None else committed, log.start)),
                "member": owner.member if owner is not None else None,
                "client": owner.client if owner is not None else None,
                "host": owner.host if owner is not None else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def thinned(found: pa.Table, memory: Memory, now_ms: int) -> tuple[Sample, Memory]:
    """What of a sample is worth writing after what was written last, and what is known after that."""
    seen = [tuple(row.values()) for row in found.drop_columns(["ts"]).to_pylist()]
    rows = {(row[0], row[1], row[2]): row for row in seen}
    due = memory.whole_ms is None or now_ms // WHOLE_EVERY_MS > memory.whole_ms // WHOLE_EVERY_MS
    if due:
        return Sample(kind=Kind.WHOLE, rows=found), Memory(rows=rows, whole_ms=now_ms)
    changed = [memory.rows.get((row[0], row[1], row[2])) != row for row in seen]
    kept = found.filter(pa.array(changed, pa.bool_()))
    return Sample(kind=Kind.CHANGES, rows=kept), Memory(rows=rows, whole_ms=memory.whole_ms)


def ask(sql: str, samples: pa.Table, rules: Mapping[str, int | float]) -> list[tuple[Any, ...]]:
    """The rows of `sql` over `samples`, whose times become numbers of ms, and `rules`, a table of one row."""
    if not samples.num_rows:
        return []
    for name in ("ts", "commit_ts"):
        at = samples.schema.get_field_index(name)
        samples = samples.set_column(at, name, samples[name].cast(pa.int64()))
    import duckdb  # 50 MB of memory, which an upkeep of no groups does without

    with duckdb.connect(config={"threads": 1, "enable_external_access": False}) as connection:
        connection.register("samples", samples)
        connection.register("rules", pa.table({name: [value] for name, value in rules.items()}))
        return connection.sql(sql).fetchall()
