"""The search for aborted transactions against a look at the whole log, and where readers of committed data stop."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.log.heads import Aborted, Head, Meta, OpenTransaction, Seg
from kafscale.log.isolation import AbortedSearch, aborted_in, visible_end
from kafscale.log.segments import first_at
from kafscale.log.state import LogState
from kafscale.log.transactions import End, Event, Transactions

BATCHES = st.lists(
    st.tuples(st.sampled_from(["data", "commit", "abort"]), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=14,
)
"""What each offset holds, its producer, and whether a segment ends behind it."""


def seg(base: int, end: int) -> Seg:
    return Seg(
        base=base, last_delta=end - base - 1, size=1, etag="", crc32c=0, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=1, batches=1, created_ms=0,
    )  # fmt: skip


def laid(batches: list[tuple[str, int, bool]]) -> tuple[list[Seg], int]:
    """The entries of this log, and its stable end."""
    log, segs, events, base = Transactions(), list[Seg](), list[Event](), 0
    for offset, (kind, producer_id, ends) in enumerate(batches):
        if kind == "data":
            events.append(OpenTransaction(producer_id=producer_id, epoch=0, number=1, first=offset))
        else:
            events.append(End(producer_id=producer_id, commit=kind == "commit", offset=offset))
        if ends or offset == len(batches) - 1:
            segs.append(log.entry(seg(base, offset + 1), events))
            events, base = [], offset + 1
    return segs, log.stable_end(len(batches))


@settings(deadline=None)
@given(BATCHES)
def test_the_search_finds_what_a_look_at_the_whole_log_finds(batches: list[tuple[str, int, bool]]) -> None:
    segs, stable = laid(batches)
    everything = sorted(aborted_in(segs), key=lambda each: each.first)
    for first in range(stable):
        for end in range(first + 1, stable + 1):
            search = AbortedSearch(first, end)
            for each in segs[first_at(segs, first) :]:
                if search.take(each):
                    break
            assert list(search.found) == [
                each for each in everything if each.first < end and each.last >= first
            ]


def test_the_search_stops_at_the_first_segment_that_was_stable_past_the_range() -> None:
    segs, stable = laid([("data", 1, True), ("abort", 1, True), ("data", 2, True), ("abort", 2, True)])
    assert stable == 4
    search = AbortedSearch(0, 2)
    assert [search.take(each) for each in segs] == [False, True, True, True]
    assert search.found == (Aborted(producer_id=1, first=0, last=1),)
    assert AbortedSearch(3, 3).done


def test_what_is_open_below_the_log_start_holds_nobody_up() -> None:
    begun = (OpenTransaction(producer_id=7, epoch=0, number=1, first=3),)
    head = Head(epoch=1, topic="t", next=9, lso=3, open=begun, transactional=True)
    for log_start, stable in ((0, 3), (3, 3), (5, 5), (9, 9)):
        state = LogState(head=head, meta=Meta(log_start=log_start))
        assert visible_end(state, committed_only=True) == state.lso == stable
        assert visible_end(state, committed_only=False) == 9
    assert LogState().lso == 0
