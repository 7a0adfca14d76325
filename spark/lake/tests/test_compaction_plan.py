"""Which logs are due, how far and in which pieces, against a walk written as Kafka's LogCleanerManager is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.catalog import Log
from kafscale.lake.compaction.plan import (
    OUTPUT_BYTES_MAX,
    OUTPUT_RECORDS_MAX,
    OUTPUT_SEGMENTS_MAX,
    SPAN_MAX,
    Candidate,
    Group,
    Grouping,
    Part,
    Reason,
    Survey,
)
from kafscale.log.heads import Meta, Seg
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic

from spark.lake.tests.examples import quick

NOW = 1_000_000
SEG = Seg(
    base=0,
    last_delta=9,
    size=100,
    etag="e",
    crc32c=0,
    index_size=1,
    index_etag="i",
    epoch=1,
    min_ts=0,
    max_ts=0,
    records=10,
    batches=1,
    created_ms=NOW,
)
TIMES = st.integers(-1, NOW)
SHAPES = st.lists(st.tuples(st.integers(1, 300), TIMES), max_size=9)
CONFIGS = st.fixed_dictionaries(
    {
        "min.cleanable.dirty.ratio": st.sampled_from(["0.0", "0.3", "0.5", "1.0"]),
        "min.compaction.lag.ms": st.sampled_from(["0", "1", "200000"]),
        "max.compaction.lag.ms": st.sampled_from(["1", "500000", str((1 << 63) - 1)]),
    }
)


def log_of(shapes: list[tuple[int, int]], clean: int = 0, **more: object) -> Log:
    """Ten offsets a segment, the first `clean` of which have names of their own; all in manifests if not said."""
    configs = {"cleanup.policy": "compact", **more.pop("configs", {})}  # type: ignore[dict-item]
    topic = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=1, configs=configs)
    segments = tuple(
        replace(
            SEG,
            base=10 * number,
            size=size,
            min_ts=newest_ms,
            max_ts=newest_ms,
            key="own.kfs" if number < clean else "",
        )
        for number, (size, newest_ms) in enumerate(shapes)
    )
    end = 10 * len(shapes)
    meta = Meta(manifest_end=int(more.pop("listed", end)))  # type: ignore[call-overload]
    return Log(topic=topic, partition=0, end=end, segments=segments, meta=meta, **more)  # type: ignore[arg-type]


def look(log: Log) -> Candidate:
    survey = Survey(log, NOW)
    for seg in log.segments:
        survey.add(seg)
    return survey.done()


def part_of(segments: list[Seg]) -> Part:
    if not segments:
        return Part()
    size = sum(seg.size for seg in segments)
    return Part(segments=len(segments), bytes=size, first=segments[0].base, end=segments[-1].end)


def kafkas(log: Log) -> tuple[list[int], bool]:
    """cleanableOffsets, LogToClean and grabFilthiestCompactedLog: bases of what is cleanable, and whether it is due."""
    topic = log.topic
    first_dirty = next((seg.base for seg in log.segments if not seg.key), log.end)
    active = log.segments[-1].base if log.segments else 0
    non_active = [seg for seg in log.segments if seg.base >= first_dirty and seg.base != active]
    first_uncleanable = min(log.stable_end, active, log.meta.manifest_end)
    if topic.min_compaction_lag_ms > 0:
        for seg in non_active:
            largest = seg.max_ts if seg.max_ts >= 0 else seg.created_ms
            if largest > NOW - topic.min_compaction_lag_ms:
                first_uncleanable = min(first_uncleanable, seg.base)
                break
    cleanable = [seg for seg in non_active if seg.end <= first_uncleanable]
    clean_bytes = sum(seg.size for seg in log.segments if seg.base < min(first_dirty, active))
    dirty_bytes = sum(seg.size for seg in cleanable)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if clean_bytes + dirty_bytes else 0.0
    earliest = min((seg.min_ts for seg in non_active if seg.min_ts > 0), default=1 << 63)
    overdue = earliest < NOW - topic.max_compaction_lag_ms
    return [seg.base for seg in cleanable], bool(cleanable) and (overdue or ratio > topic.dirty_ratio_min)


@quick(400)
@given(SHAPES, st.integers(0, 9), CONFIGS, st.integers(0, 90), st.integers(0, 90))
def test_what_is_due_is_due_in_kafka(
    shapes: list[tuple[int, int]], clean: int, configs: dict[str, str], listed: int, lso: int
) -> None:
    log = log_of(shapes, clean, configs=configs, listed=min(listed, 10 * len(shapes)), lso=lso)
    bases, due = kafkas(log)
    candidate = look(log)
    dirty = [seg for seg in log.segments if seg.base in bases]
    assert candidate.dirty == part_of(dirty)
    assert candidate.clean == part_of([seg for seg in log.segments[:-1] if seg.key])
    assert candidate.log.segments == (), "its segments are not kept"
    assert (candidate.reason is not None) == due


def test_tombstones_that_are_due_are_a_reason_of_their_own() -> None:
    log = log_of([(100, 0), (100, 0), (9, 0)], 2)
    assert look(log).reason is None
    first, *rest = log.segments
    for horizon_ms, reason in ((NOW + 1, None), (NOW, Reason.TOMBSTONES)):
        dated = replace(log, segments=(replace(first, delete_horizon_ms=horizon_ms), *rest))
        assert look(dated).reason is reason


@pytest.mark.parametrize("clean", [0, 1])
def test_a_log_of_one_segment_is_left_alone(clean: int) -> None:
    candidate = look(log_of([(100, 1)], clean, configs={"min.cleanable.dirty.ratio": "0"}))
    assert (candidate.clean, candidate.dirty, candidate.reason) == (Part(), Part(), None)


GROUPED = st.lists(
    st.tuples(st.integers(1, 400), st.integers(1, 3), st.sampled_from([1, 10, 600_000])), max_size=20
)


@quick(200)
@given(GROUPED, st.integers(1, 1_000))
def test_groups_are_neighbours_of_one_epoch_and_as_large_as_they_may_be(
    shapes: list[tuple[int, int, int]], bytes_max: int
) -> None:
    epochs = sorted(epoch for _, epoch, _ in shapes)
    segments = [
        replace(SEG, base=10 * number, size=size, epoch=epoch, records=records)
        for number, ((size, _, records), epoch) in enumerate(zip(shapes, epochs, strict=True))
    ]
    found = groups(segments, bytes_max)
    assert [seg for group in found for seg in group] == segments
    for group in found:
        assert len({seg.epoch for seg in group}) == 1
        if len(group) > 1:
            assert sum(seg.size for seg in group) <= bytes_max
            assert sum(seg.records for seg in group) <= OUTPUT_RECORDS_MAX
    for group, after in zip(found, found[1:], strict=False):
        more = (*group, after[0])
        assert (
            after[0].epoch != group[0].epoch
            or sum(seg.size for seg in more) > bytes_max
            or sum(seg.records for seg in more) > OUTPUT_RECORDS_MAX
        )


def test_a_group_never_passes_what_fetch_reads_at_once_nor_what_32_bits_count() -> None:
    large = [replace(SEG, base=10 * n, size=OUTPUT_BYTES_MAX // 2 + 1) for n in range(2)]
    assert len(groups(large, 1 << 30)) == 2
    far = [
        replace(SEG, base=0),
        replace(SEG, base=10, last_delta=SPAN_MAX - 10),
        replace(SEG, base=SPAN_MAX + 1),
    ]
    assert [len(group) for group in groups(far, 1 << 30)] == [2, 1]
    many = [replace(SEG, base=10 * n, size=1, records=1) for n in range(OUTPUT_SEGMENTS_MAX + 1)]
    assert [len(group) for group in groups(many, 1 << 30)] == [OUTPUT_SEGMENTS_MAX, 1]


def groups(segments: Iterable[Seg], bytes_max: int) -> list[Group]:
    grouping = Grouping(bytes_max)
    return [group for group in (*(grouping.add(seg) for seg in segments), grouping.rest()) if group]
