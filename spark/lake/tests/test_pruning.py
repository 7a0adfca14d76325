"""Pruning keeps every segment that holds a row of the answer, and drops those that by offset, place or time cannot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kafscale.lake.catalog import Log
from kafscale.lake.pruning import HEADERS, SCHEMA, prune
from kafscale.log.heads import Seg
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic

T0 = 1_700_000_000_000
F = pc.field


def moment(seconds: int) -> pa.Scalar:
    return pa.scalar(datetime.fromtimestamp(T0 / 1000 + seconds, UTC), SCHEMA.field("timestamp").type)


def segment(base: int) -> Seg:
    """Ten records, a second apart."""
    return Seg(
        base=base,
        last_delta=9,
        size=1,
        etag="e",
        crc32c=0,
        index_size=1,
        index_etag="i",
        epoch=1,
        min_ts=T0 + 1_000 * base,
        max_ts=T0 + 1_000 * (base + 9),
        records=10,
        batches=1,
        created_ms=1,
    )


def log(name: str, partition: int, start: int = 0) -> Log:
    topic = Topic(name=name, topic_id=TopicId(bytes(16)), partitions=2)
    segments = tuple(segment(base) for base in range(0, 50, 10))
    return Log(topic=topic, partition=partition, start=start, end=50, segments=segments[start // 10 :])


LOGS = [log(name, partition) for name, partition in product(("a-1", "a-2", "b"), (0, 1))]
CONDITIONS = [
    (F("topic") == "b", 10),
    (pc.match_like(F("topic"), "a-%"), 20),
    (F("partition") == 1, 15),
    ((F("topic") == "a-1") & (F("partition") == 0) & (F("offset") >= 12) & (F("offset") < 22), 2),
    (F("offset") == 49, 6),
    (F("offset") == 50, 0),
    (F("timestamp") >= moment(39), 12),
    (F("timestamp") < moment(0), 30),
    ((F("topic") == "b") | (F("offset") < 10), 14),
    (F("key") == b"k", 30),
    (F("topic").isin(["b", "none"]), 10),
]


def rows() -> pa.Table:
    places = [(one.topic.name, one.partition, offset) for one in LOGS for offset in range(one.start, one.end)]
    names, partitions, offsets = (list(column) for column in zip(*places, strict=True))
    times = [T0 + 1_000 * offset for offset in offsets]
    return pa.table(
        [names, partitions, offsets, times, [b"k"] * len(names)],
        schema=pa.schema([SCHEMA.field(n) for n in ("topic", "partition", "offset", "timestamp", "key")]),
    )


@pytest.mark.parametrize(
    ("condition", "segments"), CONDITIONS, ids=[str(each)[:60] for each, _ in CONDITIONS]
)
def test_no_row_of_the_answer_is_pruned_and_little_else_is_kept(
    condition: pc.Expression, segments: int
) -> None:
    kept = prune(LOGS, condition)
    assert sum(len(some) for _, some in kept) == segments
    held = {
        (one.topic.name, one.partition, offset)
        for one, some in kept
        for seg in some
        for offset in range(seg.base, seg.end)
    }
    answer = rows().filter(condition).to_pylist()
    assert {(row["topic"], row["partition"], row["offset"]) for row in answer} <= held


def test_without_a_condition_all_is_kept_but_empty_logs() -> None:
    empty = Log(topic=LOGS[0].topic, partition=9)
    assert [one for one, _ in prune([*LOGS, empty], None)] == LOGS


def test_deleted_records_are_not_kept_for_their_segment_alone() -> None:
    cut = log("cut", 0, start=25)
    assert prune([cut], F("offset") < 25) == []
    ((_, kept),) = prune([cut], F("offset") == 25)
    assert [seg.base for seg in kept] == [20]


def test_a_segment_whose_times_no_calendar_has_is_kept_for_rows_without_a_time() -> None:
    """Nanoseconds taken for milliseconds: such rows have no time, and their segment must not hide them."""
    odd = replace(log("odd", 0), segments=(replace(segment(0), max_ts=1 << 60),))
    assert prune([odd], F("timestamp").is_null())
    assert prune([odd], F("timestamp") > moment(0))


BATCH_CONDITIONS = [
    (F("topic") == "b", 10),
    ((F("topic") == "b") & (F("partition") == 0) & (F("base_offset") < 20), 2),
    ((F("topic") == "b") & (F("partition") == 0) & (F("last_offset") >= 20), 3),
    (F("max_timestamp") >= moment(39), 12),
    (F("max_timestamp").is_null(), 30),
    (F("codec") == "zstd", 30),
]


@pytest.mark.parametrize(
    ("condition", "segments"), BATCH_CONDITIONS, ids=[str(each)[:60] for each, _ in BATCH_CONDITIONS]
)
def test_batches_are_pruned_by_what_is_known_of_them(condition: pc.Expression, segments: int) -> None:
    assert sum(len(some) for _, some in prune(LOGS, condition, HEADERS)) == segments


def test_a_batch_that_the_logs_start_cuts_is_kept() -> None:
    cut = log("cut", 0, start=25)
    ((_, kept),) = prune([cut], F("base_offset") == 20, HEADERS)
    assert [seg.base for seg in kept] == [20]
    assert prune([cut], F("last_offset") < 25, HEADERS) == []
