"""What compaction leaves of a group equals what a cleaner written like Kafka's leaves, whatever the batches are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.compaction.latest_offsets import LatestOffsets, LatestOffsetsBuilder
from kafscale.lake.compaction.markers import LoneMarkers
from kafscale.lake.compaction.record_filter import LoadedSegment, filter_records, keys_of
from kafscale.lake.compaction.rewrite import Rewritten, rewrite
from kafscale.log.heads import Aborted
from kafscale.log.segment import verify_segment
from kafscale.log.snapshots import EXPIRY_MS
from kafscale.wire.batches import DELETE_HORIZON, BatchHeader, has_valid_crc
from kafscale.wire.records import Codec, Record, split_batches

from spark.lake.tests.examples import quick

from .compaction_logs import (
    NOW,
    RETENTION,
    Batch,
    LogOf,
    Row,
    body,
    kafkas_map,
    kafkas_rows,
    marker,
    rows,
    source_of,
    was_aborted,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords

KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"long" * 40])
RECORDS = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 41),
    key=KEYS | st.none(),
    value=st.none() | st.binary(max_size=80) | st.just(b"same" * 500),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=2).map(
        tuple
    ),
)
BATCHES = st.builds(
    Batch,
    records=st.lists(RECORDS, min_size=1, max_size=6).map(tuple),
    codec=st.sampled_from(list(Codec)),
    producer=st.sampled_from([-1, 1, 2]),
    append_time=st.none() | st.integers(0, 1 << 41),
)
SEGMENTS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=4)


def newest_of(dirty: Sequence[LoadedSegment], aborted: Sequence[Aborted] = ()) -> LatestOffsets:
    builder = LatestOffsetsBuilder(dirty[0].seg.base)
    for source in dirty:
        assert builder.add(keys_of(source, aborted), source.seg.end)
    return builder.done()


def compact(
    sources: Sequence[LoadedSegment],
    newest: LatestOffsets,
    aborted: Sequence[Aborted] = (),
    now_ms: int = NOW,
) -> Rewritten:
    judged = filter_records(sources, newest, aborted, now_ms)
    return rewrite(judged, LoneMarkers(from_start=True), now_ms=now_ms, delete_retention_ms=RETENTION)


def as_source(rewritten: Rewritten, created_ms: int = NOW) -> LoadedSegment:
    return source_of([bytes(part) for part in rewritten.parts], key="compacted.kfs", created_ms=created_ms)


def headers_of(source: LoadedSegment) -> list[BatchHeader]:
    return [header for header, _ in split_batches(body(source))]


def told_by_kafka_python(record_set: bytes) -> list[Row]:
    return [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for batch in MemoryRecords(record_set)
        for record in batch
    ]


@quick(200)
@given(SEGMENTS, st.integers(0, 3))
def test_what_is_left_is_what_kafkas_cleaner_leaves(segments: list[list[Batch]], clean: int) -> None:
    log = LogOf(segments=segments, compacted=min(clean, len(segments) - 1))
    dirty = log.sources[log.compacted :]
    found = as_source(compact(log.sources, newest_of(dirty)))
    assert rows(body(found)) == kafkas_rows(log.sources, kafkas_map(dirty, ()), (), NOW)
    verify_segment(found.data)
    assert (found.seg.base, found.seg.last) == (log.sources[0].seg.base, log.sources[-1].seg.last)
    for header, batch in split_batches(body(found)):
        assert has_valid_crc(header, batch)


@quick(60)
@given(
    st.lists(
        st.lists(BATCHES.filter(lambda b: b.codec not in (Codec.SNAPPY, Codec.ZSTD)), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_kafka_python_reads_what_is_left(segments: list[list[Batch]]) -> None:
    log = LogOf(segments=segments)
    found = as_source(compact(log.sources, newest_of(log.sources)))
    assert told_by_kafka_python(body(found)) == kafkas_rows(log.sources, kafkas_map(log.sources, ()), (), NOW)


@quick(150)
@given(SEGMENTS)
def test_batches_keep_their_place_their_producer_and_their_sequence(segments: list[list[Batch]]) -> None:
    log = LogOf(segments=segments)
    before = {h.base_offset: (h, bytes(b)) for s in log.sources for h, b in split_batches(body(s))}
    found = as_source(compact(log.sources, newest_of(log.sources)))
    kept = {row[0] for row in rows(body(found))}
    for header, batch in split_batches(body(found)):
        old, data = before[header.base_offset]
        for name in (
            "last_offset_delta",
            "partition_leader_epoch",
            "producer_id",
            "producer_epoch",
            "base_sequence",
        ):
            assert getattr(header, name) == getattr(old, name)
        assert header.is_log_append_time == old.is_log_append_time
        if header.records_count:
            assert header.codec == old.codec
        whole = all(offset in kept for offset in range(old.base_offset, old.last_offset + 1))
        if whole and not header.attributes & DELETE_HORIZON:
            assert bytes(batch) == data, "untouched, byte for byte"


@quick(150)
@given(SEGMENTS)
def test_the_last_batch_of_each_producer_is_there_with_its_sequence(segments: list[list[Batch]]) -> None:
    log = LogOf(segments=segments)
    last = {h.producer_id: h for source in log.sources for h in headers_of(source)}
    found = as_source(compact(log.sources, newest_of(log.sources)))
    left = {h.producer_id: h for h in headers_of(found)}
    for producer, header in last.items():
        if producer >= 0:
            assert (
                left[producer].base_offset,
                left[producer].base_sequence,
                left[producer].last_offset_delta,
            ) == (
                header.base_offset,
                header.base_sequence,
                header.last_offset_delta,
            )


@quick(100)
@given(SEGMENTS)
def test_a_second_pass_changes_nothing(segments: list[list[Batch]]) -> None:
    log = LogOf(segments=segments)
    newest = newest_of(log.sources)
    first = as_source(compact(log.sources, newest))
    again = compact([first], newest)
    assert not again.changed
    assert as_source(again).data == first.data


@quick(100)
@given(SEGMENTS)
def test_tombstones_stay_until_their_horizon_and_then_go(segments: list[list[Batch]]) -> None:
    log = LogOf(segments=segments)
    rewritten = compact(log.sources, newest_of(log.sources))
    first = as_source(rewritten)
    tombstones = [row for row in rows(body(first)) if row[3] is None]
    assert bool(tombstones) == (rewritten.delete_horizon_ms > 0)
    if tombstones:
        assert rewritten.delete_horizon_ms == NOW + RETENTION
    early = compact([first], LatestOffsetsBuilder(first.seg.end).done(), now_ms=NOW + RETENTION - 1)
    assert not early.changed
    late = as_source(compact([first], LatestOffsetsBuilder(first.seg.end).done(), now_ms=NOW + RETENTION))
    assert rows(body(late)) == [row for row in rows(body(first)) if row[3] is not None]


@quick(100)
@given(SEGMENTS)
def test_a_commit_record_says_what_is_left(segments: list[list[Batch]]) -> None:
    log = LogOf(segments=segments)
    rewritten = compact(log.sources, newest_of(log.sources))
    left = rows(b"".join(rewritten.parts))
    assert rewritten.records == len(left)
    assert rewritten.max_ts == max((row[1] for row in left), default=-1)
    assert rewritten.min_ts == min((row[1] for row in left), default=-1)


@quick(100)
@given(SEGMENTS, st.integers(0, 2))
def test_group_by_group_is_the_same_as_all_at_once(segments: list[list[Batch]], at: int) -> None:
    """Whatever is published first, the rest is judged alike."""
    log = LogOf(segments=segments)
    newest = newest_of(log.sources)
    at = min(at, len(log.sources) - 1)
    parts = [compact(part, newest) for part in (log.sources[:at], log.sources[at:]) if part]
    whole = as_source(compact(log.sources, newest))
    assert [row for part in parts for row in rows(b"".join(part.parts))] == rows(body(whole))


def keyed(*keys: bytes, value: bytes | None = b"v") -> tuple[Record, ...]:
    return tuple(Record(timestamp=7, key=key, value=value) for key in keys)


def test_what_an_aborted_transaction_wrote_goes_and_hides_nothing() -> None:
    log = LogOf(
        segments=[
            [Batch(records=keyed(b"a", b"b")), Batch(records=keyed(b"a"), producer=1, transactional=True)],
            [marker(1, commit=False), Batch(records=keyed(b"b"), producer=1, transactional=True)],
            [marker(1, commit=True), Batch(records=keyed(b"z"))],
        ]
    )
    aborted = (Aborted(producer_id=1, first=2, last=3),)
    found = as_source(compact(log.sources, newest_of(log.sources, aborted), aborted))
    assert [row[0] for row in rows(body(found))] == [0, 4, 6]
    assert rows(body(found)) == kafkas_rows(log.sources, kafkas_map(log.sources, aborted), aborted, NOW)
    markers = [h.base_offset for h in headers_of(found) if h.is_control]
    assert markers == [3, 5], "markers stay as they are"
    gone = [h for h in headers_of(found) if was_aborted(h, aborted) and not h.is_control]
    assert all(h.records_count == 0 for h in gone)


def test_a_silent_producer_is_forgotten_after_a_day() -> None:
    batches = [Batch(records=keyed(b"x")), Batch(records=keyed(b"a"), producer=1), Batch(records=keyed(b"a"))]
    log = LogOf(segments=[batches], created_ms=NOW)
    newest = newest_of(log.sources)
    assert [h.base_offset for h in headers_of(as_source(compact(log.sources, newest)))] == [0, 1, 2]
    late = compact(log.sources, newest, now_ms=NOW + EXPIRY_MS)
    assert [h.base_offset for h in headers_of(as_source(late))] == [0, 2]


def test_a_group_without_a_record_left_still_leads_from_its_first_offset_to_its_last() -> None:
    log = LogOf(segments=[[Batch(records=keyed(b"a"))] * 3, [Batch(records=keyed(b"a"))]])
    rewritten = compact(log.sources[:1], newest_of(log.sources))
    found = as_source(rewritten)
    assert [(h.base_offset, h.last_offset, h.records_count) for h in headers_of(found)] == [
        (0, 0, 0),
        (2, 2, 0),
    ]
    assert (rewritten.min_ts, rewritten.max_ts, rewritten.records) == (-1, -1, 0)
    assert told_by_kafka_python(body(found)) == []
    verify_segment(found.data)


def test_a_tombstone_in_a_batch_of_append_time_keeps_its_time() -> None:
    batch = Batch(records=keyed(b"a", b"b", value=None), append_time=5_000)
    log = LogOf(segments=[[batch]])
    found = as_source(compact(log.sources, newest_of(log.sources)))
    (header,) = headers_of(found)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + RETENTION
    assert [row[1] for row in rows(body(found))] == [5_000, 5_000]


@pytest.mark.parametrize("retention", [0, (1 << 63) - 1])
def test_horizons_at_the_ends_of_time(retention: int) -> None:
    log = LogOf(segments=[[Batch(records=keyed(b"a", value=None))]])
    judged = filter_records(log.sources, newest_of(log.sources), (), NOW)
    rewritten = rewrite(judged, LoneMarkers(from_start=True), now_ms=NOW, delete_retention_ms=retention)
    assert rewritten.delete_horizon_ms == min(NOW + retention, (1 << 63) - 1)
    assert [row[1] for row in rows(body(as_source(rewritten)))] == [7]


@quick(60)
@given(SEGMENTS, st.integers(1, 3))
def test_a_full_map_ends_the_range_before_a_segment(segments: list[list[Batch]], keys_max: int) -> None:
    log = LogOf(segments=segments)
    builder = LatestOffsetsBuilder(0, keys_max=keys_max)
    taken = []
    for source in log.sources:
        if not builder.add(keys_of(source, ()), source.seg.end):
            break
        taken.append(source)
    newest = builder.done()
    assert taken, "a pass always gets on"
    assert newest.end == taken[-1].seg.end
    assert len(newest.keys) <= keys_max or len(taken) == 1
    if len(taken) < len(log.sources):
        assert len(kafkas_map(log.sources[: len(taken) + 1], ())) > keys_max, "it ends only when it is full"
    expected = kafkas_map(taken, ())
    assert dict(zip(newest.keys.to_pylist(), newest.offsets.tolist(), strict=True)) == expected
    found = compact(log.sources, newest)
    assert rows(b"".join(found.parts)) == kafkas_rows(log.sources, expected, (), NOW)
