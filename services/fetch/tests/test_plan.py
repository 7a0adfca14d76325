"""What a reader is served, by the model: the log's batches as a list."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.fetch.plan import Cut, ResponseLimit, bytes_at_most, choose, cut, expected_bytes
from kafscale.log.heads import Seg
from kafscale.log.segment import BatchInfo, SegmentError, build_segment, parse_index
from kafscale.log.segment_view import SegmentView
from kafscale.log.segments import OffsetGap, first_at
from kafscale.wire.records import Codec, Record, build_batch, patch_batch


@dataclass(frozen=True)
class Batch:
    base: int
    last: int
    data: bytes
    codec: Codec


@dataclass(frozen=True)
class Log:
    batches: list[Batch]
    views: list[SegmentView]

    @property
    def segs(self) -> list[Seg]:
        return [view.seg for view in self.views]

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1


def make_log(shape: list[list[tuple[int, int]]], codecs: list[Codec] | None = None) -> Log:
    """Segments of batches of (records, value size); codecs cycle over the batches."""
    offset, batches, views = 0, [], []
    for segment in shape:
        base, infos, parts = offset, [], []
        for count, size in segment:
            codec = codecs[len(batches) % len(codecs)] if codecs else Codec.NONE
            data = bytearray(build_batch([Record(timestamp=1, value=b"x" * size)] * count, codec=codec))
            patch_batch(data, offset, 1)
            infos.append(BatchInfo(offset, offset + count - 1, len(data), count))
            parts.append(bytes(data))
            batches.append(Batch(offset, offset + count - 1, bytes(data), codec))
            offset += count
        built = build_segment(base, infos, parts, 1)
        seg = Seg(
            base=base,
            last_delta=built.last_offset - base,
            size=built.size,
            etag="e",
            crc32c=built.crc32c,
            index_size=len(built.index),
            index_etag="i",
            epoch=1,
            min_ts=1,
            max_ts=1,
            records=built.records,
            batches=built.batches,
            created_ms=1,
        )
        views.append(SegmentView(seg, b"".join(built.body)))
    return Log(batches, views)


SHAPES = st.lists(
    st.lists(st.tuples(st.integers(1, 7), st.integers(0, 60)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


def model(log: Log, offset: int, upper: int, limit: int, *, at_least_one: bool) -> list[Batch]:
    served: list[Batch] = []
    size = 0
    for batch in log.batches:
        if batch.last < offset:
            continue
        if batch.base >= upper:
            break
        if size + len(batch.data) > limit and not (at_least_one and not served):
            break
        served.append(batch)
        size += len(batch.data)
        if size > limit:
            break
    return served


@given(shape=SHAPES, data=st.data())
@settings(max_examples=200)
def test_the_record_set_is_what_the_model_serves_to_the_byte(shape, data) -> None:
    log = make_log(shape)
    offset = data.draw(st.integers(0, log.end))
    upper = data.draw(st.sampled_from([log.end] + [batch.base for batch in log.batches]))
    limit = data.draw(st.integers(0, 1_500))
    at_least_one = data.draw(st.booleans())
    views = log.views[first_at(log.segs, offset) :]
    result = cut(views, offset, upper, limit, at_least_one=at_least_one)
    expected = model(log, offset, upper, limit, at_least_one=at_least_one)
    assert b"".join(result.parts) == b"".join(batch.data for batch in expected)
    assert result.size == sum(len(batch.data) for batch in expected)
    assert result.next_offset == (expected[-1].last + 1 if expected else offset)
    assert len(result.parts) <= len(views)


@given(shape=SHAPES, data=st.data())
@settings(max_examples=100)
def test_a_reader_who_follows_next_offset_sees_every_batch_once(shape, data) -> None:
    log = make_log(shape)
    limit = data.draw(st.integers(1, 400))
    offset, seen = 0, []
    while offset < log.end:
        views = log.views[first_at(log.segs, offset) :]
        result = cut(views, offset, log.end, limit, at_least_one=True)
        assert result.next_offset > offset
        seen += result.parts
        offset = result.next_offset
    assert b"".join(seen) == b"".join(batch.data for batch in log.batches)


@given(shape=SHAPES, data=st.data())
@settings(max_examples=100)
def test_no_answer_passes_over_an_offset(shape, data) -> None:
    """Whatever segments are missing from what is to be served, the record set is the log's from the offset on."""
    log = make_log(shape)
    offset = data.draw(st.integers(0, log.end - 1))
    views = [view for view in log.views if data.draw(st.booleans())][data.draw(st.integers(0, 1)) :]
    if views and not views[0].seg.base <= offset <= views[0].seg.last:
        with pytest.raises(OffsetGap):
            cut(views, offset, log.end, 1 << 20, at_least_one=True)
        return
    served = b"".join(cut(views, offset, log.end, 1 << 20, at_least_one=True).parts)
    rest = b"".join(batch.data for batch in log.batches if batch.last >= offset)
    assert rest.startswith(served)
    assert bool(served) == bool(views)


def without_batch(log: Log, gone: int, *, records: int) -> SegmentView:
    """The first segment without its batch number `gone`; `records` is what its commit record says it holds."""
    left = [batch for n, batch in enumerate(log.batches) if n != gone]
    infos = [BatchInfo(b.base, b.last, len(b.data), b.last - b.base + 1) for b in left]
    built = build_segment(0, infos, [b.data for b in left], 1)
    seg = replace(log.segs[0], size=built.size, crc32c=built.crc32c, records=records)
    return SegmentView(seg, b"".join(built.body))


def test_batches_that_compaction_took_are_passed_over_and_no_others_ever() -> None:
    """The segment itself says it: a compacted one holds fewer records than offsets."""
    log = make_log([[(3, 10)] * 4])
    compacted = without_batch(log, 2, records=9)
    served = cut([compacted], 4, log.end, 1 << 20, at_least_one=True)
    assert b"".join(served.parts) == log.batches[1].data + log.batches[3].data
    behind = cut([compacted], 7, log.end, 1 << 20, at_least_one=True)
    assert b"".join(behind.parts) == log.batches[3].data
    with pytest.raises(SegmentError):
        cut([without_batch(log, 2, records=12)], 7, log.end, 1 << 20, at_least_one=True)


def test_views_are_of_the_cached_object_and_not_copies() -> None:
    log = make_log([[(3, 10)], [(3, 10)]])
    result = cut(log.views, 0, log.end, 1 << 20, at_least_one=True)
    assert [part.obj for part in result.parts] == [view.buffer.obj for view in log.views]


@given(shape=SHAPES, data=st.data())
@settings(max_examples=100)
def test_what_is_chosen_to_load_covers_the_offset_and_no_more_than_is_needed(shape, data) -> None:
    log = make_log(shape)
    offset = data.draw(st.integers(0, log.end - 1))
    limit = data.draw(st.integers(1, 600))
    count_max = data.draw(st.integers(1, 4))
    chosen = choose(log.segs, offset, limit, count_max=count_max)
    assert chosen[0].base <= offset <= chosen[0].last
    at = log.segs.index(chosen[0])
    assert chosen == log.segs[at : at + len(chosen)]
    assert len(chosen) <= count_max
    assert sum(expected_bytes(seg, offset) for seg in chosen[:-1]) < limit
    if len(chosen) < min(count_max, len(log.segs) - at):
        assert sum(expected_bytes(seg, offset) for seg in chosen) >= limit


@given(shape=SHAPES, data=st.data())
@settings(max_examples=100)
def test_no_more_is_ever_served_than_the_metadata_promised(shape, data) -> None:
    log = make_log(shape)
    offset = data.draw(st.integers(0, log.end))
    limit = data.draw(st.integers(1, 600))
    views = log.views[first_at(log.segs, offset) :]
    promised = bytes_at_most(log.segs, offset, limit)
    served = cut(views, offset, log.end, limit, at_least_one=False)
    assert served.size <= promised
    assert (promised > 0) == (offset < log.end)


def test_beyond_the_last_segment_nothing_is_chosen() -> None:
    log = make_log([[(2, 1)], [(2, 1)]])
    assert choose(log.segs, 4, 100, count_max=9) == []
    assert bytes_at_most(log.segs, 4, 100) == 0


def test_only_the_first_partition_with_data_may_pass_the_response_limit() -> None:
    limit = ResponseLimit(100)
    assert (limit.allow(1_000), limit.at_least_one) == (100, True)
    limit.take(0)  # an empty partition changes nothing
    assert (limit.allow(1_000), limit.at_least_one) == (100, True)
    limit.take(160)  # the soft first batch
    assert (limit.allow(1_000), limit.at_least_one, limit.exhausted) == (0, False, True)


@pytest.mark.parametrize("max_bytes", [0, -5])
def test_a_limit_of_nothing_still_lets_the_first_batch_through(max_bytes: int) -> None:
    limit = ResponseLimit(max_bytes)
    assert (limit.allow(-1), limit.at_least_one, limit.exhausted) == (0, True, False)


@given(shape=SHAPES, use_index=st.booleans(), probes=st.lists(st.integers(0, 200), min_size=1, max_size=20))
@settings(max_examples=100)
def test_positions_are_found_alike_however_the_view_was_used_before(shape, use_index, probes) -> None:
    """Walks leave marks, an index brings some: neither may change an answer."""
    view = make_log(shape).views[0]
    batches = make_log(shape).batches[: view.seg.batches]
    if use_index:
        infos = [BatchInfo(b.base, b.last, len(b.data), 1) for b in batches]
        assert view.adopt_index(parse_index(build_segment(0, infos, [b.data for b in batches], 1).index))
    starts = [32 + sum(len(b.data) for b in batches[:n]) for n in range(len(batches) + 1)]
    for probe in probes:
        holding = next((n for n, b in enumerate(batches) if b.last >= probe), len(batches))
        beginning = next((n for n, b in enumerate(batches) if b.base >= probe), len(batches))
        assert view.batch_of(probe) == starts[holding]
        assert view.batch_from(probe) == starts[beginning]
        limit = 32 + probe * 7
        assert view.boundary_before(limit) == max(start for start in starts if start <= limit)


def test_marks_stay_few_and_later_searches_start_from_them() -> None:
    view = make_log([[(1, 100)] * 2_000]).views[0]
    assert view.batch_of(1_999) < view.end
    marks = len(view._positions)
    assert 10 < marks < 40
    assert view.batch_of(1_999) == view.boundary_before(view.end - 1)
    assert len(view._positions) == marks


def test_an_index_that_does_not_land_on_batches_is_ignored() -> None:
    log = make_log([[(60, 1)] * 4])
    view = log.views[0]
    infos = [BatchInfo(b.base, b.last, len(b.data), 60) for b in log.batches]
    good = build_segment(0, infos, [b.data for b in log.batches], 1).index
    assert len(parse_index(good).offsets) > 1
    shifted = bytearray(good)
    shifted[-1] += 1  # the last entry's position
    assert not view.adopt_index(parse_index(bytes(shifted)))
    renumbered = bytearray(good)
    renumbered[-5] -= 1  # the last entry's offset: a true batch start under a wrong name
    assert not view.adopt_index(parse_index(bytes(renumbered)))
    assert view.batch_of(239) == view.boundary_before(view.end - 1)
    assert view.adopt_index(parse_index(good))


@pytest.mark.parametrize("place", ["header", "records", "footer", "end"])
def test_a_segment_that_is_not_the_committed_one_is_refused(place: str) -> None:
    view = make_log([[(3, 10), (2, 5)]]).views[0]
    data = bytearray(view.buffer)
    if place == "end":
        del data[-1]
    else:
        data[{"header": 10, "records": 100, "footer": len(data) - 10}[place]] ^= 1
    with pytest.raises(SegmentError):
        SegmentView(view.seg, bytes(data))


def test_an_intact_segment_of_other_bytes_is_refused_by_its_checksum() -> None:
    ours, other = make_log([[(3, 10)]]).views[0], make_log([[(3, 10)]], [Codec.NONE]).views[0]
    changed = bytearray(build_batch([Record(timestamp=2, value=b"y" * 10)] * 3))
    patch_batch(changed, 0, 1)
    foreign = build_segment(0, [BatchInfo(0, 2, len(changed), 3)], [bytes(changed)], 1)
    assert foreign.size == ours.seg.size == other.seg.size
    with pytest.raises(SegmentError):
        SegmentView(ours.seg, b"".join(foreign.body))


def test_an_empty_cut_stays_where_it_was() -> None:
    assert cut([], 7, 9, 100, at_least_one=True) == Cut(parts=(), size=0, next_offset=7)
