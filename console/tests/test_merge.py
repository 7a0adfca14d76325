"""R1 and R2: a walk over all partitions, against plain lists."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st
from kafscale.console.records import cursor
from kafscale.console.records.merge import Cut, Merge, Span, Walk

READ_MAX = 5
"""Of the reader of these tests: a window with more records is not read whole."""


@dataclass(frozen=True, slots=True)
class Placed:
    partition: int
    offset: int
    timestamp_ms: int


Logs = dict[int, tuple[Span, list[Placed]]]


@st.composite
def some_logs(draw: st.DrawFn) -> Logs:
    """Gaps of compaction anywhere, also at both ends; equal, falling and missing timestamps."""
    logs: Logs = {}
    for partition in draw(st.sets(st.integers(0, 5), min_size=1, max_size=4)):
        start = draw(st.integers(0, 3))
        span = Span(start, start + draw(st.integers(0, 40)))
        offsets = draw(st.sets(st.integers(span.start, span.end - 1))) if span.end > start else set()
        records = [Placed(partition, at, draw(st.integers(-1, 6))) for at in sorted(offsets)]
        logs[partition] = span, records
    return logs


def walked(logs: Logs, walk: Walk, cut: Cut, limit: int, partial: int) -> Merge[Placed]:
    """A page. The reader gives what a bounded one can: parts of windows for NEWER, a refusal for OLDER."""
    merge: Merge[Placed] = Merge(walk, {number: span for number, (span, _) in logs.items()}, cut, limit)
    while windows := merge.wanted():
        for number, window in windows.items():
            inside = [each for each in logs[number][1] if window.start <= each.offset < window.end]
            if len(inside) <= READ_MAX:
                merge.give(number, window, inside)
            elif walk is Walk.OLDER:
                merge.shrink(number)
            else:
                some = inside[: max(partial, 1)]
                merge.give(number, Span(window.start, some[-1].offset + 1), some)
    return merge


def plainly(logs: Logs, walk: Walk, cut: Cut) -> list[Placed]:
    """R1 as it is written: of the next record of each partition, the newest or the oldest."""
    older = walk is Walk.OLDER
    left = {
        number: [each for each in records if (each.offset < cut[number]) == older][:: -1 if older else 1]
        for number, (_, records) in logs.items()
    }
    order: list[Placed] = []
    while nexts := [records[0] for records in left.values() if records]:
        best = (max if older else min)(nexts, key=lambda each: (each.timestamp_ms, each.partition))
        order.append(left[best.partition].pop(0))
    return order


def some_cut(data: st.DataObject, logs: Logs) -> Cut:
    return {
        number: data.draw(st.integers(span.start, span.end), f"cut {number}")
        for number, (span, _) in logs.items()
    }


@given(some_logs(), st.sampled_from(Walk), st.integers(1, 9), st.integers(1, READ_MAX), st.data())
def test_the_pages_of_a_walk_together_are_the_merge_of_the_partitions(
    logs: Logs, walk: Walk, limit: int, partial: int, data: st.DataObject
) -> None:
    cut = some_cut(data, logs)
    whole = plainly(logs, walk, cut)
    seen: list[Placed] = []
    while True:
        page = walked(logs, walk, cut, limit, partial)
        seen += page.shown
        assert seen == whole[: len(seen)]
        cut = cursor.from_text(cursor.to_text(page.cut()))
        if len(page.shown) < limit:
            break
    assert seen == whole
    ends = {number: span.start if walk is Walk.OLDER else span.end for number, (span, _) in logs.items()}
    assert page.cut() == ends


@given(some_logs(), st.sampled_from(Walk), st.integers(1, 9), st.data())
def test_turning_round_at_the_end_of_a_page_repeats_it_and_at_its_beginning_leaves_it_out(
    logs: Logs, walk: Walk, limit: int, data: st.DataObject
) -> None:
    cut = some_cut(data, logs)
    back = Walk.NEWER if walk is Walk.OLDER else Walk.OLDER
    page = walked(logs, walk, cut, limit, 2)
    everything = {each for _, records in logs.values() for each in records}
    beyond = set(walked(logs, walk, page.cut(), 1_000, 2).shown)
    behind = set(walked(logs, back, page.cut(), 1_000, 2).shown)
    assert beyond | behind == everything
    assert beyond.isdisjoint(behind)
    assert behind - set(page.shown) == set(walked(logs, back, cut, 1_000, 2).shown)


@given(some_logs(), st.integers(1, 9), st.data())
def test_records_deleted_between_two_pages_move_no_other_record(
    logs: Logs, limit: int, data: st.DataObject
) -> None:
    cut = some_cut(data, logs)
    page = walked(logs, Walk.NEWER, cut, limit, 2)
    later: Logs = {}
    for number, (span, records) in logs.items():
        start = data.draw(st.integers(span.start, span.end), f"new start {number}")
        later[number] = Span(start, span.end), [each for each in records if each.offset >= start]
    expected = {each for each in plainly(logs, Walk.NEWER, page.cut()) if each in later[each.partition][1]}
    again = walked(later, Walk.NEWER, page.cut(), 1_000, 2)
    assert set(again.shown) == expected


def test_a_wide_gap_costs_few_reads() -> None:
    log = Span(0, 1_000_000_000)
    merge: Merge[Placed] = Merge(Walk.OLDER, {0: log}, {0: log.end}, 50)
    reads = 0
    while windows := merge.wanted():
        merge.give(0, windows[0], [])
        reads += 1
    assert merge.cut() == {0: 0}
    assert reads < 20


def test_a_partition_that_a_cursor_does_not_name_is_above_it() -> None:
    """It was added after the page."""
    logs: Logs = {0: (Span(0, 1), [Placed(0, 0, 5)]), 1: (Span(0, 1), [Placed(1, 0, 9)])}
    assert walked(logs, Walk.OLDER, {0: 1}, 9, 1).shown == [Placed(0, 0, 5)]
    assert walked(logs, Walk.NEWER, {0: 1}, 9, 1).shown == [Placed(1, 0, 9)]


@given(st.dictionaries(st.integers(0, 1 << 31), st.integers(0, (1 << 63) - 1), max_size=40))
def test_a_cursor_is_read_as_it_was_written(cut: Cut) -> None:
    assert cursor.from_text(cursor.to_text(cut)) == cut


@given(st.text(st.characters(max_codepoint=0x17F), max_size=40) | st.text("AQgDzw_-", max_size=90))
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    try:
        cut = cursor.from_text(text)
    except ValueError:
        return
    assume(cut)
    assert all(number >= 0 and 0 <= offset < 1 << 63 for number, offset in cut.items())
