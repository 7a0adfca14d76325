"""Which slices are settled, when, and what the head says afterwards."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.heads import Aborted, Head, Seg
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.produce.log.model import NEVER, Instant, Limits, SettleRun
from kafscale.produce.log.settling import RETRY_FIRST_MS, SettledRun, Settling, first_run, settled_seg

BUNDLE = b"b" * 16
WALL_MS = 1_700_000_000_000
LIMITS = Limits(settle_ms=1_000, seal_bytes_max=1_000)


def at(mono_ms: int) -> Instant:
    return Instant(mono_ms, WALL_MS + mono_ms)


def seg(base: int, *, epoch: int = 3, size: int = 10, is_slice: bool = True) -> Seg:
    """One record; created at WALL_MS."""
    return Seg(
        base=base,
        last_delta=0,
        size=size,
        etag="e",
        crc32c=0x7FFF,
        index_size=0 if is_slice else 28,
        index_etag="" if is_slice else "i",
        epoch=epoch,
        min_ts=0,
        max_ts=0,
        records=1,
        batches=1,
        created_ms=WALL_MS,
        bundle=BUNDLE if is_slice else b"",
    )


def head(*tail: Seg) -> Head:
    return Head(epoch=9, topic="t", next=len(tail), tail=tail, bytes=sum(each.size for each in tail))


def test_a_run_is_the_first_slices_of_one_epoch() -> None:
    own = seg(0, is_slice=False)
    mine, other = seg(1), seg(2, epoch=4)
    assert first_run((own, mine, other), 1_000) == (mine,)
    assert first_run((own, mine, seg(2), own, seg(4)), 1_000) == (mine, seg(2))
    assert first_run((own,), 1_000) == ()
    assert first_run((), 1_000) == ()


def test_a_run_holds_what_a_segment_may_hold_but_one_slice_at_least() -> None:
    assert first_run((seg(0, size=600), seg(1, size=400), seg(2, size=1)), 1_000) == (
        seg(0, size=600),
        seg(1, size=400),
    )
    assert first_run((seg(0, size=5_000), seg(1)), 1_000) == (seg(0, size=5_000),)


def test_nothing_is_due_without_slices() -> None:
    settling = Settling(count(1))
    assert settling.due_ms(head(seg(0, is_slice=False)), LIMITS) == NEVER
    assert settling.take(head(), LIMITS, at(10_000)) is None


def test_a_run_is_due_when_its_first_slice_is_old() -> None:
    """Nine to eleven tenths of settle_ms: the place in between follows from the slice."""
    settling, young = Settling(count(1)), head(seg(0))
    assert settling.take(young, LIMITS, at(0)) is None
    due_ms = settling.due_ms(young, LIMITS)
    assert 900 <= due_ms <= 1_100
    assert settling.take(young, LIMITS, at(due_ms - 1)) is None
    taken = settling.take(young, LIMITS, at(due_ms))
    assert taken is not None
    assert (taken.run, taken.epoch) == (young.tail, 9)


def test_a_fold_makes_a_run_no_younger() -> None:
    """The slice that repeats the first ones begins at their base. A run that begins elsewhere has its own age."""
    settling, young = Settling(count(1)), head(seg(0))
    assert settling.take(young, LIMITS, at(0)) is None
    due_ms = settling.due_ms(young, LIMITS)
    later = replace(seg(0), last_delta=3, created_ms=WALL_MS + 500, crc32c=0xFFFF)
    assert settling.due_ms(head(later, seg(4)), LIMITS) == due_ms
    next_run = replace(seg(4), created_ms=WALL_MS + 500)
    assert settling.take(head(next_run), LIMITS, at(600)) is None
    assert settling.due_ms(head(next_run), LIMITS) == due_ms + 500


def test_a_slice_from_the_future_ages_from_when_it_is_seen() -> None:
    """The clock of the owner that wrote it was ahead. A fold, and a commit behind it, change nothing."""
    settling = Settling(count(1))
    ahead = replace(seg(0), created_ms=WALL_MS + 86_400_000)
    assert settling.age_ms(head(ahead), at(50)) == 0
    assert settling.take(head(ahead), LIMITS, at(100)) is None
    due_ms = settling.due_ms(head(ahead), LIMITS)
    assert 1_000 <= due_ms <= 1_200
    assert settling.age_ms(head(ahead), at(700)) == 600
    grown = head(replace(ahead, last_delta=2, created_ms=WALL_MS + 90_000_000), seg(3))
    assert settling.take(grown, LIMITS, at(due_ms - 1)) is None
    assert settling.age_ms(grown, at(800)) == 700
    assert settling.take(grown, LIMITS, at(due_ms)) is not None


def test_the_age_is_that_of_the_oldest_slice() -> None:
    settling, own = Settling(count(1)), seg(0, is_slice=False)
    assert settling.age_ms(head(), at(0)) is None
    assert settling.age_ms(head(own), at(0)) is None
    left = head(own, seg(1))
    assert settling.age_ms(left, at(300)) == 300, "it was written before this owner saw it"
    settling.take(left, LIMITS, at(300))
    assert settling.age_ms(left, at(400)) == 400


def test_without_a_wait_a_run_is_due_whatever_its_clock_says_but_not_before_the_pause_after_a_failure() -> (
    None
):
    settling, ahead = Settling(count(1)), head(replace(seg(0), created_ms=WALL_MS + 3_600_000))
    asked = replace(LIMITS, settle_ms=0)
    assert settling.take(ahead, LIMITS, at(5)) is None
    assert settling.due_ms(ahead, asked) == 0
    taken = settling.take(ahead, asked, at(5))
    assert taken is not None
    settling.failed(taken.plan, at(10))
    assert settling.due_ms(ahead, asked) == 10 + RETRY_FIRST_MS


def test_a_writer_that_has_just_begun_looks_at_once() -> None:
    """It does not know the wall clock before its first event, and the slices may be old."""
    assert Settling(count(1)).due_ms(head(seg(0)), LIMITS) == 0


@pytest.mark.parametrize(
    "tail",
    [
        (seg(0, size=900), seg(1, size=200)),
        tuple(seg(base) for base in range(LIMITS.checkpoint_at)),
    ],
    ids=["full", "long"],
)
def test_a_run_is_due_at_once_when_it_is_full_or_the_tail_is_long(tail: tuple[Seg, ...]) -> None:
    taken = Settling(count(1)).take(head(*tail), LIMITS, at(0))
    assert taken is not None
    assert taken.run == first_run(tail, 1_000)


def test_a_long_tail_that_begins_with_a_segment_waits_for_its_checkpoint() -> None:
    tail = (seg(0, is_slice=False), *(seg(base) for base in range(1, LIMITS.checkpoint_at)))
    assert Settling(count(1)).take(head(*tail), LIMITS, at(0)) is None


def test_one_plan_at_a_time_and_a_failed_one_is_made_anew_later() -> None:
    settling, full = Settling(count(1)), head(seg(0, size=1_000))
    first = settling.take(full, LIMITS, at(0))
    assert first is not None
    assert settling.due_ms(full, LIMITS) == NEVER, "one is under way"
    assert settling.take(full, LIMITS, at(0)) is None
    settling.failed(first.plan, at(5))
    assert settling.due_ms(full, LIMITS) == 5 + RETRY_FIRST_MS
    again = settling.take(full, LIMITS, at(5 + RETRY_FIRST_MS))
    assert again is not None
    settling.rewritten(first.plan, seg(0, is_slice=False))
    assert settling.take_ready() is None, "an answer to the plan that was given up"
    settling.rewritten(again.plan, seg(0, is_slice=False))
    ready = settling.take_ready()
    assert ready is not None
    assert ready.plan.run == full.tail
    settling.applied()
    assert settling.due_ms(full, LIMITS) < NEVER


def test_the_wait_after_a_failure_doubles_until_a_plan_is_applied() -> None:
    settling, full = Settling(count(1)), head(seg(0, size=1_000))

    def waits_ms(failures: int, begun_ms: int) -> list[int]:
        waits, now_ms = [], begun_ms
        for _ in range(failures):
            plan = settling.take(full, LIMITS, at(now_ms))
            assert plan is not None
            settling.failed(plan.plan, at(now_ms))
            waits.append(settling.due_ms(full, LIMITS) - now_ms)
            now_ms += waits[-1]
        return waits

    assert waits_ms(5, 0) == [10_000, 20_000, 40_000, 60_000, 60_000]
    assert settling.take(full, LIMITS, at(1_000_000)) is not None
    settling.applied()
    assert waits_ms(1, 1_000_000) == [RETRY_FIRST_MS]


@given(
    before=st.integers(0, 3),
    epochs=st.lists(st.integers(3, 4), min_size=1, max_size=8),
    behind=st.integers(0, 3),
)
def test_the_segment_takes_the_place_of_its_run_and_of_nothing_else(
    before: int, epochs: list[int], behind: int
) -> None:
    tail = tuple(seg(base, is_slice=False) for base in range(before))
    tail += tuple(seg(before + n, epoch=epoch, size=20) for n, epoch in enumerate(epochs))
    run = first_run(tail, 1_000)
    new = replace(seg(run[0].base, is_slice=False, size=77), last_delta=len(run) - 1)
    end = len(tail)
    grown = head(*tail, *(seg(end + n, epoch=9) for n in range(behind)))
    after = SettledRun(plan=SettleRun(plan=1, run=run, epoch=9), seg=new).applied_to(grown)
    assert [each for each in after.tail if each is not new] == [
        each for each in grown.tail if each not in run
    ]
    position = 0
    for each in after.tail:
        assert each.base == position
        position = each.end
    assert position == grown.next == after.next
    assert after.bytes == sum(each.size for each in after.tail)
    assert replace(after, tail=grown.tail, bytes=grown.bytes) == grown


def test_a_change_of_the_head_or_of_the_limit_is_seen() -> None:
    settling, one = Settling(count(1)), head(seg(0, size=400))
    assert settling.take(one, LIMITS, at(0)) is None
    two = head(seg(0, size=400), seg(1, size=400))
    taken = settling.take(two, LIMITS, at(0))
    assert taken is not None
    assert taken.run == two.tail
    settling.applied()
    again = settling.take(two, replace(LIMITS, seal_bytes_max=500), at(0))
    assert again is not None
    assert again.run == two.tail[:1]


def test_the_entry_of_a_settled_segment_keeps_what_its_slices_say_of_aborted_transactions() -> None:
    """And each other field that a later version adds to an entry, until settling decides it."""
    lost = Aborted(producer_id=1, first=0, last=0), Aborted(producer_id=2, first=1, last=1)
    run = [replace(seg(at), position=32, aborted=(each,), unstable=at) for at, each in enumerate(lost)]
    batches = [BatchInfo(each.base, each.last, 61, 0) for each in run]
    built = build_segment(0, batches, [bytes(122)], WALL_MS)
    made = settled_seg(run, built, "etag", "index etag")
    assert (made.aborted, made.unstable) == (lost, 1)
    assert (made.base, made.last, made.is_slice, made.position, made.key) == (0, 1, False, 0, "")
