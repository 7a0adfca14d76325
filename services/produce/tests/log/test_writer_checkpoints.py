"""Checkpoints and hand-over."""

from dataclasses import replace

import pytest
from kafscale.log.heads import TAIL_MAX, EpochStart
from kafscale.produce.log.model import (
    Checkpointed,
    CommitHead,
    Drained,
    Limits,
    MetaWrite,
    PutObject,
    State,
    StepDownReason,
    TakeCheckpoint,
)
from kafscale.produce.settings import ProduceSettings, limits_of
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from writer_desk import GATHERING, QUICK, Desk, numbered
from writer_truth import read_back

META = MetaWrite(expected_revision=0, value=b"")
COMPACTED = replace(QUICK, tail_rest_ms=60_000)


def desk_with_tail(length: int, limits: Limits = QUICK) -> Desk:
    desk = Desk(limits)
    for token in range(length):
        desk.write(token, numbered(token))
    return desk


def test_a_tail_of_more_than_24_asks_for_a_checkpoint_once() -> None:
    desk = desk_with_tail(24)
    assert not desk.pop(TakeCheckpoint)
    desk.write(100, numbered(24))
    desk.write(101, numbered(25))
    plan = desk.one(TakeCheckpoint)
    assert plan.manifest is not None
    assert [seg.base for seg in plan.manifest.segments] == list(range(17))
    assert plan.manifest.epochs == (EpochStart(epoch=3, start=0),)
    assert plan.snapshot.offset == 25
    assert read_back(plan.snapshot).producers[0].batches[-1].last_seq == 24


def test_a_checkpoint_trims_the_tail_in_its_turn_and_commits_go_on_meanwhile() -> None:
    desk = desk_with_tail(25)
    plan = desk.one(TakeCheckpoint)
    desk.write(100, numbered(25))
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    commit = desk.commit()
    assert commit.meta == META
    assert [seg.base for seg in commit.head.tail] == list(range(17, 26))
    assert (commit.head.snap_offset, commit.head.snap_key, commit.head.next) == (25, "snap", 26)
    assert desk.one(Checkpointed).snap_key == "snap"
    desk.write(101, numbered(26))
    assert desk.writer.head.snap_key == "snap"


def test_a_full_tail_holds_commits_back_until_the_checkpoint_made_room() -> None:
    desk = desk_with_tail(TAIL_MAX)
    plan = desk.one(TakeCheckpoint)
    desk.append(200, numbered(TAIL_MAX))
    desk.tick()
    desk.upload()
    assert not desk.pop(CommitHead)
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    desk.commit()
    desk.commit()
    assert desk.error(200) is ErrorCode.NONE
    assert len(desk.writer.head.tail) == TAIL_MAX - 17 + 1


def test_a_failed_checkpoint_is_planned_anew_after_a_pause() -> None:
    desk = desk_with_tail(25)
    first = desk.one(TakeCheckpoint)
    desk.do(desk.writer.plan_failed, first.plan)
    assert not desk.pop(TakeCheckpoint)
    assert desk.writer.next_deadline() == desk.now_ms + 1_000
    desk.tick(1_000)
    second = desk.one(TakeCheckpoint)
    assert second.plan != first.plan
    desk.do(desk.writer.checkpoint_ready, first.plan, "late", META)
    assert not desk.pop(CommitHead), "the answer of a plan that was given up"


def test_the_wait_after_a_failed_checkpoint_doubles() -> None:
    """A store that fails gets fewer requests, and not more. But commits may wait for a checkpoint."""
    desk = desk_with_tail(25)
    for wait_ms in (1_000, 2_000, 4_000, 8_000, 8_000):
        desk.do(desk.writer.plan_failed, desk.one(TakeCheckpoint).plan)
        assert desk.writer.next_deadline() == desk.now_ms + wait_ms
        desk.tick(wait_ms)
    desk.do(desk.writer.checkpoint_ready, desk.one(TakeCheckpoint).plan, "snap", META)
    desk.commit()
    for token in range(100, 117):
        desk.write(token, numbered(token - 75))
    desk.do(desk.writer.plan_failed, desk.one(TakeCheckpoint).plan)
    assert desk.writer.next_deadline() == desk.now_ms + 1_000


def test_a_checkpoint_refused_because_meta_moved_is_planned_anew_at_once() -> None:
    desk = desk_with_tail(25)
    plan = desk.one(TakeCheckpoint)
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    commit = desk.one(CommitHead)
    desk.do(desk.writer.commit_refused, commit.txn, desk.writer.head, desk.writer.revision, ambiguous=True)
    assert desk.writer.state is State.SERVING
    assert desk.one(TakeCheckpoint).plan != plan.plan


def test_a_checkpoint_applied_unheard_is_taken_for_applied() -> None:
    desk = desk_with_tail(25)
    desk.do(desk.writer.checkpoint_ready, desk.one(TakeCheckpoint).plan, "snap", META)
    commit = desk.one(CommitHead)
    desk.do(desk.writer.commit_refused, commit.txn, commit.head, 900, ambiguous=True)
    assert (desk.writer.state, desk.writer.head) == (State.SERVING, commit.head)


def test_a_checkpoint_over_a_claimed_head_fences() -> None:
    desk = desk_with_tail(25)
    desk.do(desk.writer.checkpoint_ready, desk.one(TakeCheckpoint).plan, "snap", META)
    commit = desk.one(CommitHead)
    claimed = replace(desk.writer.head, epoch=4, owner="2/x")
    desk.do(desk.writer.commit_refused, commit.txn, claimed, 900, ambiguous=False)
    assert desk.stopped() is StepDownReason.FENCED


def test_a_hand_over_refuses_commits_what_it_has_snapshots_and_is_drained() -> None:
    desk = Desk(GATHERING)
    desk.append(1, numbered(0))
    desk.do(desk.writer.begin_handoff)
    desk.append(2, numbered(1))
    assert desk.error(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    desk.upload()
    desk.commit()
    assert desk.error(1) is ErrorCode.NONE
    plan = desk.one(TakeCheckpoint)
    assert plan.manifest is None
    assert plan.snapshot.offset == 1
    assert not desk.pop(Drained)
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    desk.commit()
    desk.one(Drained)
    released = desk.writer.released_head("5")
    assert (released.owner, released.handoff_to, released.snap_key) == ("", "5", "snap")
    assert released.next == 1
    desk.do(desk.writer.step_down, StepDownReason.RELEASED)
    assert desk.writer.state is State.CLOSED


def test_an_idle_partition_is_drained_at_once() -> None:
    desk = Desk()
    desk.do(desk.writer.begin_handoff)
    desk.one(Drained)


def test_a_hand_over_does_not_wait_for_a_checkpoint_that_fails() -> None:
    desk = Desk()
    desk.write(1)
    desk.do(desk.writer.begin_handoff)
    desk.do(desk.writer.plan_failed, desk.one(TakeCheckpoint).plan)
    desk.one(Drained)
    assert desk.writer.state is State.DRAINED


def test_in_a_compacted_topic_all_but_the_newest_segment_leave_a_tail_once_it_is_quiet() -> None:
    desk = desk_with_tail(1, COMPACTED)
    desk.tick(120_000)
    assert not desk.pop(TakeCheckpoint), "the newest segment is never compacted"
    desk.write(1, numbered(1))
    desk.tick(999)
    desk.write(2, numbered(2))
    desk.tick(999)
    assert not desk.pop(TakeCheckpoint)
    assert desk.writer.next_deadline() == desk.now().mono_ms + 1
    desk.tick(1)
    plan = desk.one(TakeCheckpoint)
    assert plan.manifest is not None
    assert [seg.base for seg in plan.manifest.segments] == [0, 1]
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    desk.commit()
    assert [seg.base for seg in desk.writer.head.tail] == [2]
    desk.write(3, numbered(3))
    desk.tick(9_999)
    assert not desk.pop(TakeCheckpoint), "not more often than every ten seconds"
    desk.tick(1)
    desk.one(TakeCheckpoint)


def test_in_a_compacted_topic_that_is_never_quiet_they_leave_it_after_the_time_that_they_may_rest() -> None:
    desk = desk_with_tail(1, replace(COMPACTED, tail_rest_ms=5_000))
    for number in range(1, 10):
        desk.write(number, numbered(number))
        assert not desk.pop(TakeCheckpoint), number
        desk.tick(600)
    desk.one(TakeCheckpoint)


@pytest.mark.parametrize(
    ("lag_ms", "rest_ms", "settle_ms"),
    [
        ("1", 1_000, 1_000),
        ("5000", 5_000, 5_000),
        ("120000", 60_000, 120_000),
        (None, 60_000, ProduceSettings().settle_ms),
    ],
)
def test_a_compacted_topic_rests_no_longer_than_its_compaction_lag(
    lag_ms: str | None, rest_ms: int, settle_ms: int
) -> None:
    configs = {"cleanup.policy": "compact"} | ({"max.compaction.lag.ms": lag_ms} if lag_ms else {})
    topic = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=1, configs=configs)
    limits = limits_of(topic, ProduceSettings())
    assert (limits.tail_rest_ms, limits.settle_ms) == (rest_ms, settle_ms)


def test_elsewhere_a_short_tail_rests() -> None:
    desk = desk_with_tail(3)
    desk.tick(120_000)
    assert not desk.pop(TakeCheckpoint)


def test_a_hand_over_in_a_compacted_topic_leaves_the_newest_segment_in_the_tail() -> None:
    desk = desk_with_tail(3, COMPACTED)
    desk.do(desk.writer.begin_handoff)
    plan = desk.one(TakeCheckpoint)
    assert plan.manifest is not None
    assert [seg.base for seg in plan.manifest.segments] == [0, 1]
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    desk.commit()
    desk.one(Drained)
    assert [seg.base for seg in desk.writer.released_head("").tail] == [2]


def test_a_hand_over_moves_a_tail_although_its_snapshot_is_current() -> None:
    desk = desk_with_tail(25)
    desk.do(desk.writer.checkpoint_ready, desk.one(TakeCheckpoint).plan, "snap", META)
    desk.commit()
    assert (len(desk.writer.head.tail), desk.writer.head.snap_offset) == (8, 25)
    desk.do(desk.writer.configure, COMPACTED)
    desk.do(desk.writer.begin_handoff)
    desk.do(desk.writer.checkpoint_ready, desk.one(TakeCheckpoint).plan, "snap-2", META)
    desk.commit()
    desk.one(Drained)
    assert len(desk.writer.head.tail) == 1


def test_limits_may_change_while_it_runs() -> None:
    desk = Desk(GATHERING)
    desk.append(1)
    desk.do(desk.writer.configure, QUICK)
    desk.append(2)
    assert len(desk.pop(PutObject)) == 2


def test_acknowledgements_tell_the_log_start() -> None:
    desk = Desk()
    desk.writer.moved_log_start(5)
    desk.writer.moved_log_start(3)
    desk.write(1)
    assert desk.replies[1].log_start_offset == 5
