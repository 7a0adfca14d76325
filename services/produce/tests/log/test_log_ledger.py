"""What a refused transaction's head says about it."""

from dataclasses import fields, replace
from itertools import count

import pytest
from kafscale.log.heads import EPOCHS_MAX, Aborted, EpochStart, Head, OpenTransaction, Seg
from kafscale.log.transactions import End
from kafscale.produce.log.ledger import Outcome, extended, judge_commit, judge_plan
from kafscale.produce.log.model import Limits
from kafscale.produce.log.plans import Checkpoints, plan_manifest
from kafscale.produce.log.producers import ProducerTable

MINE = b"m" * 16
OTHER = b"o" * 16
SENT = Head(epoch=3, topic="t", owner="1/a", next=12, attempt=MINE, epochs=(EpochStart(epoch=3, start=8),))


def current(**fields: object) -> Head:
    return replace(Head(epoch=4, topic="t", owner="2/b", next=10, attempt=OTHER), **fields)  # type: ignore[arg-type]


def judge(head: Head | None, *, ambiguous: bool = True) -> Outcome:
    return judge_commit(SENT, 10, head, ambiguous=ambiguous)


def starts(*pairs: tuple[int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(epoch=epoch, start=start) for epoch, start in pairs)


def seg(base: int, end: int, epoch: int) -> Seg:
    return Seg(
        base=base,
        last_delta=end - base - 1,
        size=1,
        etag="",
        crc32c=0,
        index_size=1,
        index_etag="",
        epoch=epoch,
        min_ts=0,
        max_ts=0,
        records=1,
        batches=1,
        created_ms=0,
    )


def test_a_commit_keeps_every_field_of_the_head_that_it_does_not_decide() -> None:
    """Also those that a later version adds."""
    decided = {"next", "lso", "attempt", "tail", "epochs", "bytes", "max_ts", "open", "transactional"}
    kept = {each.name: object() for each in fields(Head) if each.name not in {*decided, "epoch"}}
    before = current(**kept, epochs=starts((4, 1)), tail=(seg(0, 10, 4),))
    after = extended(before, [seg(10, 12, 4)], MINE)
    assert {name: getattr(after, name) for name in kept} == kept
    assert (after.next, after.lso, len(after.tail)) == (12, 12, 2)


def begun(producer_id: int, first: int, number: int = 1) -> OpenTransaction:
    return OpenTransaction(producer_id=producer_id, epoch=0, number=number, first=first)


def ended(producer_id: int, offset: int, *, commit: bool = False) -> End:
    return End(producer_id=producer_id, commit=commit, offset=offset)


def test_each_entry_of_a_commit_says_what_was_open_when_the_log_ended_there() -> None:
    before = current(next=10, lso=10, tail=(seg(0, 10, 4),), epochs=starts((4, 1)))
    events = [[begun(7, 10)], [begun(8, 13), ended(7, 14)], []]
    after = extended(before, [seg(10, 12, 4), seg(12, 15, 4), seg(15, 16, 4)], MINE, events)
    assert (after.open, after.lso, after.next, after.transactional) == ((begun(8, 13),), 13, 16, True)
    first, second, third = after.tail[1:]
    assert (first.unstable, first.aborted) == (2, ())
    assert (second.unstable, second.aborted) == (2, (Aborted(producer_id=7, first=10, last=14),))
    assert (third.unstable, third.aborted) == (3, ())
    closed = extended(after, [seg(16, 17, 4)], MINE, [[ended(8, 16, commit=True)]])
    assert (closed.open, closed.lso, closed.transactional) == ((), 17, True)
    assert (closed.tail[-1].unstable, closed.tail[-1].aborted) == (0, ())
    plain = extended(closed, [seg(17, 18, 4)], MINE, [[]])
    assert (plain.tail[-1], plain.lso, plain.transactional) == (seg(17, 18, 4), 18, True)


def test_a_fold_keeps_what_the_entries_that_it_repeats_aborted_and_repeats_no_event() -> None:
    before = extended(current(next=0, epochs=()), [seg(0, 1, 4)], MINE, [[begun(7, 0)]])
    before = extended(before, [seg(1, 2, 4)], MINE, [[ended(7, 1)]])
    after = extended(before, [seg(0, 4, 4)], MINE, [[begun(7, 2, 2), ended(7, 3)]])
    (fold,) = after.tail
    assert [(each.first, each.last) for each in fold.aborted] == [(0, 1), (2, 3)]
    assert (fold.unstable, after.open, after.lso) == (0, (), 4)


def test_my_attempt_in_the_head_means_committed() -> None:
    assert judge(current(attempt=MINE, next=12)) is Outcome.COMMITTED


def test_refused_at_the_first_and_only_send_means_absent() -> None:
    assert judge(current(next=20), ambiguous=False) is Outcome.ABSENT
    assert judge(None, ambiguous=False) is Outcome.ABSENT


def test_a_log_that_ends_at_my_base_does_not_hold_it() -> None:
    assert judge(current(next=10)) is Outcome.ABSENT


def test_my_epoch_holding_the_range_means_committed_even_under_later_commits() -> None:
    assert judge(current(next=20, epochs=starts((3, 8), (4, 12)))) is Outcome.COMMITTED
    assert judge(current(next=12, epochs=starts((3, 8)))) is Outcome.COMMITTED


def test_a_successor_starting_at_my_base_means_absent() -> None:
    assert judge(current(next=20, epochs=starts((3, 8), (4, 10)))) is Outcome.ABSENT


def test_a_history_without_my_epoch_means_absent() -> None:
    assert judge(current(next=20, epochs=starts((2, 0), (4, 10)))) is Outcome.ABSENT


def test_a_pruned_history_asks_the_tail() -> None:
    pruned = starts(*((5 + n, 30 + n) for n in range(EPOCHS_MAX)))
    assert judge(current(next=60, epochs=pruned, tail=(seg(10, 12, 3),))) is Outcome.COMMITTED
    assert judge(current(next=60, epochs=pruned, tail=(seg(9, 13, 4),))) is Outcome.ABSENT


def test_evidence_that_is_gone_leaves_the_outcome_unknown() -> None:
    pruned = starts(*((5 + n, 30 + n) for n in range(EPOCHS_MAX)))
    assert judge(current(next=60, epochs=pruned, tail=(seg(50, 60, 20),))) is Outcome.UNKNOWABLE
    assert judge(None) is Outcome.UNKNOWABLE


def test_a_checkpoint_over_an_untouched_head_was_refused_for_its_meta() -> None:
    assert judge_plan(SENT, 7, current(), 7) is Outcome.ABSENT


def test_a_checkpoint_is_applied_when_the_head_is_exactly_it() -> None:
    assert judge_plan(SENT, 7, SENT, 8) is Outcome.COMMITTED
    assert judge_plan(SENT, 7, replace(SENT, epoch=4), 8) is Outcome.UNKNOWABLE
    assert judge_plan(SENT, 7, None, 0) is Outcome.UNKNOWABLE


def test_a_pruned_history_is_not_asked_when_the_log_ends_at_my_base() -> None:
    pruned = starts(*((5 + n, 30 + n) for n in range(EPOCHS_MAX)))
    assert judge(current(next=10, epochs=pruned)) is Outcome.ABSENT


def tail_of(kinds: str) -> Head:
    """A head whose tail has a segment for each `.` and a slice for each `s`, of one offset each."""
    tail = tuple(
        replace(seg(n, n + 1, 3), bundle=b"b" * 16 if kind == "s" else b"") for n, kind in enumerate(kinds)
    )
    return replace(SENT, next=len(kinds), tail=tail)


@pytest.mark.parametrize(
    ("kinds", "keep", "moved"),
    [("....", 1, 3), ("..s.", 1, 2), ("..ss", 0, 2), ("s...", 0, 0), ("...s", 3, 1), ("", 0, 0)],
)
def test_a_checkpoint_moves_the_segments_in_front_of_the_first_slice(
    kinds: str, keep: int, moved: int
) -> None:
    manifest = plan_manifest(tail_of(kinds), keep)
    assert (len(manifest.segments) if manifest else 0) == moved


def test_a_tail_that_begins_with_a_slice_asks_for_no_checkpoint() -> None:
    """There would be nothing to move, and the next one would be due at once."""
    limits = Limits(checkpoint_at=2)
    for kinds, due in (("....", True), (".s..", True), ("s...", False)):
        checkpoints = Checkpoints(ProducerTable(), count(1))
        assert (checkpoints.due_ms(tail_of(kinds), limits) == 0) is due
