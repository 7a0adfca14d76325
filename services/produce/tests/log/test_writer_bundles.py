"""A writer whose slices go into bundles: what it lets the instance seal, and what it keeps in memory."""

from __future__ import annotations

from kafscale.log.heads import TAIL_MAX
from kafscale.produce.log.model import CommitHead, SettleRun, State, StepDownReason
from kafscale.produce.log.settling import KeptBudget
from kafscale.wire.errors import ErrorCode
from writer_desk import GATHERING, Desk, numbered, one_batch
from writer_truth import settled

HELD_MS = 1_000
"""Longer than records are held while a flight of their partition is under way."""


def desk_with_slices(count: int, kept_bytes: int = 0) -> Desk:
    """Committed, each in a bundle of its own."""
    desk = Desk(GATHERING, kept=KeptBudget(kept_bytes))
    for token in range(count):
        desk.append(token)
        desk.store(desk.seal())
        desk.commit()
    return desk


def test_no_slice_is_sealed_for_which_the_tail_has_no_room() -> None:
    """Settling fails, so nothing makes room. Those on their way need a place each, whatever becomes of a plan."""
    desk = desk_with_slices(TAIL_MAX - 2)
    assert desk.one(SettleRun), "with the shell"
    flights = []
    for token in (100, 101):
        desk.append(token)
        desk.tick(HELD_MS)
        flights.append(desk.seal())
    desk.append(102)
    desk.tick(HELD_MS)
    assert desk.writer.wants() is None
    desk.store(flights[0])
    assert desk.writer.wants() is None, "one is in a transaction, one on its way"
    desk.store(flights[1])
    assert not desk.writer.without_room(), "it waits for the transaction"
    desk.commit()
    desk.commit()
    assert len(desk.writer.head.tail) == TAIL_MAX
    assert desk.writer.wants() is None
    assert not desk.writer.without_room()


def test_room_that_a_plan_makes_counts_when_it_is_applied() -> None:
    desk = desk_with_slices(TAIL_MAX)
    plan = desk.one(SettleRun)
    desk.append(100)
    desk.tick(HELD_MS)
    desk.do(desk.writer.run_rewritten, plan.plan, settled(plan.run))
    assert desk.writer.wants() is None, "the transaction may yet be refused"
    desk.commit()
    assert desk.writer.wants() is not None


def test_a_slice_that_waits_for_room_alone_is_named() -> None:
    """The second defence, as if `wants` had not been asked."""
    desk = desk_with_slices(TAIL_MAX - 1)
    flights = []
    for token in (100, 101):
        desk.append(token)
        desk.tick(HELD_MS)
        flights.append(desk.writer.seal_slice(desk.now()))
    later = desk.store(flights[1])
    assert desk.writer.without_room() == [], "it waits for the one before it"
    desk.store(flights[0])
    assert desk.writer.without_room() == [later]
    desk.commit()
    assert desk.writer.without_room() == [later]
    plan = desk.one(SettleRun)
    desk.do(desk.writer.run_rewritten, plan.plan, settled(plan.run))
    desk.commit()
    assert desk.writer.without_room() == []
    desk.commit()
    assert desk.error(101) is ErrorCode.NONE


def test_no_plan_goes_into_a_fold_in_flight_also_after_a_transaction_without_records() -> None:
    """A doubt's transaction changes nothing of what the fold repeats."""
    desk = desk_with_slices(3, kept_bytes=1 << 20)
    desk.append(100)
    fold = desk.seal()
    assert fold.home.replaces == 3
    desk.append(101, numbered(5))
    desk.append(102, numbered(7))
    desk.tick()
    desk.commit()
    assert desk.error(102) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap, and the writer is the owner"
    desk.tick(GATHERING.settle_ms * 2)
    assert not desk.pop(SettleRun)
    desk.store(fold)
    desk.commit()
    desk.tick(GATHERING.settle_ms * 2)
    assert [seg.base for seg in desk.one(SettleRun).run] == [0]


def test_what_the_tail_does_not_name_any_more_is_not_kept() -> None:
    budget = KeptBudget(1 << 20)
    desk = Desk(GATHERING, kept=budget)
    for token in range(2):
        desk.append(token)
        desk.store(desk.seal())
        desk.commit()
    assert budget.used_bytes == desk.writer.kept.bytes > 0
    desk.tick(GATHERING.settle_ms * 2)
    plan = desk.one(SettleRun)
    desk.do(desk.writer.run_rewritten, plan.plan, settled(plan.run))
    desk.commit()
    assert (budget.used_bytes, len(desk.writer.kept)) == (0, 0)


def test_a_commit_that_is_applied_after_the_epoch_keeps_nothing() -> None:
    """Nobody would clear it again, and the budget is that of all partitions."""
    budget = KeptBudget(1 << 20)
    desk = Desk(GATHERING, kept=budget)
    desk.append(1, one_batch(b"v" * 1_000))
    desk.store(desk.seal())
    commit = desk.one(CommitHead)
    desk.do(desk.writer.step_down, StepDownReason.ORDERED)
    assert desk.writer.state is State.CLOSING
    desk.do(desk.writer.committed, commit.txn, desk.revision + 1)
    assert desk.error(1) is ErrorCode.NONE
    assert (budget.used_bytes, len(desk.writer.kept)) == (0, 0)
