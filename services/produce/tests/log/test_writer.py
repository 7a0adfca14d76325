"""The partition writer, step by step."""

from dataclasses import replace

import pytest
from kafscale.produce.log.model import (
    Checkpointed,
    CommitHead,
    Drained,
    FoundObject,
    HeadObject,
    Limits,
    MetaWrite,
    Part,
    Published,
    PutFailure,
    PutObject,
    SealWanted,
    State,
    StepDownReason,
    SteppedDown,
    TakeCheckpoint,
)
from kafscale.storage.heads import TAIL_MAX, EpochStart, Head, decode_head
from kafscale.storage.objects import IfAbsent, IfMatch
from kafscale.wire.errors import ErrorCode
from writer_desk import HEAD, QUICK, Desk, one_batch

S3 = Limits(linger_min_ms=5)
META = MetaWrite(expected_revision=0, value=b"")


# --- from append to acknowledgement --------------------------------------------------------------


def test_a_request_is_acknowledged_by_its_commit_and_not_before() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    assert desk.replies == {}
    commit = desk.commit()
    reply = desk.replies[1]
    assert (reply.error, reply.base_offset, reply.revision) == (ErrorCode.NONE, 0, desk.revision)
    assert commit.expected_revision == 100
    assert decode_head(commit.value) == commit.head


def test_the_commit_names_both_objects_and_extends_the_compared_head() -> None:
    desk = Desk()
    desk.append(1, one_batch(count=3))
    desk.tick()
    desk.upload()
    head = desk.commit().head
    (seg,) = head.tail
    assert (seg.base, seg.last, seg.etag, seg.index_etag) == (0, 2, "etag-0-SEGMENT", "etag-0-INDEX")
    assert (head.next, head.lso, head.epoch, head.bytes) == (3, 3, 3, seg.size)
    assert (seg.records, seg.batches, seg.min_ts, seg.max_ts, head.max_ts) == (3, 1, 5, 5, 5)
    assert head.epochs == (EpochStart(epoch=3, start=0),)
    assert desk.writer.head == head


def test_what_one_turn_brings_is_one_segment() -> None:
    desk = Desk()
    for token in range(5):
        desk.append(token)
    desk.tick()
    desk.upload()
    desk.commit()
    assert [desk.replies[token].base_offset for token in range(5)] == [0, 1, 2, 3, 4]
    assert len(desk.writer.head.tail) == 1


def test_both_objects_are_put_only_if_absent_and_say_whose_they_are() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    segment, index = desk.pop(PutObject)
    assert (segment.part, index.part) == (Part.SEGMENT, Part.INDEX)
    assert segment.condition == index.condition == IfAbsent()
    assert segment.key.endswith("/segment-00000000000000000000.kfs")
    assert index.key.endswith("/segment-00000000000000000000.index")
    assert segment.metadata["kfs-epoch"] == "3"
    assert segment.metadata["kfs-attempt"] == index.metadata["kfs-attempt"]
    assert segment.metadata["kfs-last"] == "0"


def test_record_bytes_are_referenced_and_never_copied() -> None:
    desk = Desk()
    data = one_batch(b"x" * 500)
    desk.append(1, data)
    desk.tick()
    segment = desk.pop(PutObject)[0]
    assert any(isinstance(part, memoryview) and part.obj is data.obj for part in segment.body)


def test_an_append_without_a_token_is_stored_and_answered_to_nobody() -> None:
    desk = Desk()
    desk.append(None)
    desk.append(None, memoryview(b"junk"))
    desk.tick()
    desk.upload()
    assert desk.commit().head.next == 1
    assert desk.replies == {}


def test_committed_segments_are_published() -> None:
    desk = Desk()
    desk.write(1)
    published = desk.one(Published)
    assert (published.segments, published.next, published.revision) == (
        desk.writer.head.tail,
        1,
        desk.revision,
    )


def test_an_epoch_enters_the_history_with_its_first_record_only() -> None:
    head = Head(epoch=9, topic="t", owner="1/boot", next=5, lso=5, epochs=(EpochStart(epoch=7, start=0),))
    desk = Desk(head=head)
    assert desk.writer.head.epochs[-1].epoch == 7
    desk.write(1)
    desk.write(2)
    assert desk.writer.head.epochs == (EpochStart(epoch=7, start=0), EpochStart(epoch=9, start=5))


# --- sealing -------------------------------------------------------------------------------------


def test_an_idle_partition_lingers_as_long_as_its_store_asks() -> None:
    desk = Desk(S3)
    desk.append(1)
    assert desk.writer.next_deadline() == desk.now_ms + 5
    desk.tick(4)
    assert not desk.pop(PutObject)
    desk.tick(1)
    assert len(desk.pop(PutObject)) == 2


def test_records_gather_while_an_upload_is_under_way() -> None:
    desk = Desk(S3)
    desk.append(1)
    desk.tick(5)
    desk.append(2)
    desk.tick(100)
    assert len(desk.pop(PutObject)) == 2, "only the first segment's"
    desk.do(desk.writer.upload_done, 0, Part.SEGMENT, "a")
    assert not desk.pop(PutObject)
    desk.do(desk.writer.upload_done, 0, Part.INDEX, "b")
    assert {put.base for put in desk.pop(PutObject)} == {1}


def test_no_record_waits_longer_than_the_flush_interval_for_a_slow_upload() -> None:
    desk = Desk(S3)
    desk.append(1)
    desk.tick(5)
    desk.append(2)
    assert desk.writer.next_deadline() == desk.now_ms + 250
    desk.tick(250)
    assert {put.base for put in desk.pop(PutObject)} == {0, 1}


def test_a_full_buffer_is_sealed_by_the_append_that_fills_it() -> None:
    desk = Desk(replace(S3, seal_bytes_max=150))
    desk.append(1)
    desk.append(2)
    desk.append(3)
    assert {put.base for put in desk.pop(PutObject)} == {0}


def test_segment_bytes_lower_the_seal() -> None:
    assert Limits(segment_bytes=1000).seal_bytes == 1000
    assert Limits().seal_bytes == 4 << 20


def test_at_most_four_segments_upload_at_once_and_the_next_waits_its_turn() -> None:
    desk = Desk(replace(QUICK, seal_bytes_max=1))
    for token in range(6):
        desk.append(token)
    assert {put.base for put in desk.actions if isinstance(put, PutObject)} == {0, 1, 2, 3}
    desk.upload(only=0)
    desk.commit()
    assert {put.base for put in desk.actions if isinstance(put, PutObject)} == {1, 2, 3, 4}


def test_a_governed_seal_waits_for_its_grant() -> None:
    desk = Desk(replace(S3, governed=True))
    desk.append(1)
    desk.tick(5)
    assert desk.one(SealWanted).bytes_waiting > 60
    desk.tick(100)
    assert not desk.actions
    desk.do(desk.writer.grant_seal)
    assert len(desk.pop(PutObject)) == 2


def test_a_governed_seal_without_a_grant_happens_at_the_longest_linger() -> None:
    desk = Desk(replace(S3, governed=True))
    desk.append(1)
    desk.tick(5)
    desk.one(SealWanted)
    assert desk.writer.next_deadline() == 1_000 + 5_000
    desk.tick(4_995)
    assert len(desk.pop(PutObject)) == 2


# --- commits -------------------------------------------------------------------------------------


def test_segments_commit_in_offset_order_whatever_order_their_uploads_end_in() -> None:
    desk = Desk(replace(QUICK, seal_bytes_max=1))
    for token in range(3):
        desk.append(token)
    desk.upload(only=2)
    desk.upload(only=1)
    assert not desk.pop(CommitHead)
    desk.upload(only=0)
    commit = desk.commit()
    assert [seg.base for seg in commit.head.tail] == [0, 1, 2], "folded into one put"
    assert {desk.error(token) for token in range(3)} == {ErrorCode.NONE}


def test_one_transaction_is_out_at_a_time_and_the_next_compares_its_revision() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    desk.append(2)
    desk.tick()
    desk.upload()
    first = desk.commit()
    second = desk.commit()
    assert (first.expected_revision, second.expected_revision) == (100, 101)
    assert [seg.base for seg in second.head.tail] == [0, 1]


def test_a_refused_commit_fences_the_writer_and_fails_its_requests_definitely() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    desk.append(2)
    commit = desk.one(CommitHead)
    other = Head(epoch=4, topic="t", owner="2/x")
    desk.do(desk.writer.commit_refused, commit.txn, other, 150, ambiguous=False)
    assert desk.stopped() is StepDownReason.FENCED
    assert desk.error(1) is desk.error(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert desk.writer.state is State.CLOSED


def test_a_commit_applied_unheard_is_acknowledged_and_the_writer_goes_on() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    commit = desk.one(CommitHead)
    desk.do(desk.writer.commit_refused, commit.txn, commit.head, 150, ambiguous=True)
    assert desk.error(1) is ErrorCode.NONE
    assert (desk.writer.state, desk.writer.revision) == (State.SERVING, 150)


def test_a_commit_applied_before_the_fence_is_acknowledged_by_the_fenced_writer() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    commit = desk.one(CommitHead)
    claimed = replace(commit.head, epoch=4, owner="2/x")
    desk.do(desk.writer.commit_refused, commit.txn, claimed, 150, ambiguous=True)
    assert desk.error(1) is ErrorCode.NONE
    assert desk.stopped() is StepDownReason.FENCED


def test_a_deleted_topic_leaves_an_ambiguous_commit_unknown() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    desk.append(2)
    desk.do(desk.writer.commit_refused, desk.one(CommitHead).txn, None, 0, ambiguous=True)
    assert desk.stopped() is StepDownReason.TOPIC_DELETED
    assert desk.error(1) is ErrorCode.REQUEST_TIMED_OUT
    assert desk.error(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_rejected_commit_was_not_applied_and_ends_the_epoch() -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.upload()
    desk.do(desk.writer.commit_rejected, desk.one(CommitHead).txn)
    assert desk.stopped() is StepDownReason.COMMIT_REJECTED
    assert desk.error(1) is ErrorCode.KAFKA_STORAGE_ERROR


# --- uploads that meet something -------------------------------------------------------------------


def desk_with_conflict() -> tuple[Desk, PutObject]:
    desk = Desk()
    desk.append(1)
    desk.tick()
    segment = next(a for a in desk.actions if isinstance(a, PutObject) and a.part is Part.SEGMENT)
    desk.conflict(0)
    return desk, segment


def found(epoch: int | None, attempt: bytes | None, etag: str = "there") -> FoundObject:
    return FoundObject(etag=etag, size=1, epoch=epoch, attempt=attempt)


def test_my_own_earlier_put_counts_as_uploaded_with_the_etag_that_stands() -> None:
    desk, put = desk_with_conflict()
    mine = bytes.fromhex(put.metadata["kfs-attempt"])
    desk.do(desk.writer.object_found, 0, Part.SEGMENT, found(3, mine))
    desk.upload()
    assert desk.commit().head.tail[0].etag == "there"


def test_an_older_epochs_orphan_is_replaced_by_its_etag() -> None:
    desk, put = desk_with_conflict()
    desk.do(desk.writer.object_found, 0, Part.SEGMENT, found(2, b"x" * 16))
    again = next(a for a in desk.pop(PutObject) if a.part is Part.SEGMENT)
    assert again.condition == IfMatch("there")
    assert again.body == put.body, "write-once: the same bytes"
    assert again.metadata == put.metadata


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_object_of_my_epoch_or_a_newer_one_fences_me(epoch: int) -> None:
    desk, _ = desk_with_conflict()
    desk.do(desk.writer.object_found, 0, Part.SEGMENT, found(epoch, b"x" * 16))
    assert desk.stopped() is StepDownReason.FENCED
    assert desk.error(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_foreign_object_is_refused_and_never_replaced() -> None:
    desk, _ = desk_with_conflict()
    desk.do(desk.writer.object_found, 0, Part.SEGMENT, found(None, None))
    assert desk.stopped() is StepDownReason.FOREIGN_OBJECT
    assert desk.error(1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_object_that_vanished_is_put_again_if_absent() -> None:
    desk, _ = desk_with_conflict()
    desk.do(desk.writer.object_found, 0, Part.SEGMENT, None)
    again = next(a for a in desk.pop(PutObject) if a.part is Part.SEGMENT)
    assert again.condition == IfAbsent()


def test_metadata_that_does_not_parse_is_foreign() -> None:
    seen = FoundObject.from_metadata("e", 1, {"kfs-epoch": "x", "kfs-attempt": "00"})
    assert (seen.epoch, seen.attempt) == (None, None)


def test_an_unknown_put_is_sent_again_unchanged_after_a_pause_that_grows() -> None:
    desk = Desk(head=replace(HEAD, next=0))
    desk.append(1)
    desk.tick()
    first = next(a for a in desk.pop(PutObject) if a.part is Part.SEGMENT)
    pauses = []
    for _ in range(4):
        desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
        due = desk.writer.next_deadline()
        assert due is not None
        pauses.append(due - desk.now_ms)
        desk.tick(due - desk.now_ms)
        assert desk.one(PutObject) == first
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0] >= 50


def test_an_unknown_head_is_asked_again() -> None:
    desk, _ = desk_with_conflict()
    desk.pop(PutObject)
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    desk.tick(60_000 - 1)
    assert desk.one(HeadObject).part is Part.SEGMENT


def test_a_store_that_is_away_too_long_ends_the_epoch() -> None:
    desk = Desk()
    desk.append(1, within_ms=600_000)
    desk.tick()
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    desk.tick(60_000)
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    assert desk.stopped() is StepDownReason.STORE_UNAVAILABLE
    assert desk.error(1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert desk.writer.bytes_held == 0


@pytest.mark.parametrize("failure", PutFailure)
def test_a_full_or_refusing_store_ends_the_epoch_with_a_storage_error(failure: PutFailure) -> None:
    desk = Desk()
    desk.append(1)
    desk.tick()
    desk.do(desk.writer.upload_failed, 0, Part.INDEX, failure)
    assert desk.stopped() is failure.reason
    assert desk.error(1) is ErrorCode.KAFKA_STORAGE_ERROR
    desk.upload()
    assert not desk.actions, "late answers change nothing"


# --- deadlines and bounds --------------------------------------------------------------------------


def test_a_request_at_its_deadline_is_unknown_and_its_bytes_go_on() -> None:
    desk = Desk()
    desk.append(1, within_ms=100)
    desk.tick()
    assert desk.writer.next_deadline() == 1_100
    desk.tick(100)
    assert desk.error(1) is ErrorCode.REQUEST_TIMED_OUT
    desk.upload()
    assert desk.commit().head.next == 1


def test_a_request_in_an_unresolved_commit_is_answered_at_its_deadline_even_after_step_down() -> None:
    desk = Desk()
    desk.append(1, within_ms=100)
    desk.append(2, within_ms=900)
    desk.tick()
    desk.upload()
    commit = desk.one(CommitHead)
    desk.do(desk.writer.step_down, StepDownReason.ORDERED)
    assert desk.replies == {}
    assert desk.writer.state is State.CLOSING
    desk.tick(100)
    assert desk.error(1) is ErrorCode.REQUEST_TIMED_OUT
    desk.do(desk.writer.committed, commit.txn, 150)
    assert desk.error(2) is ErrorCode.NONE
    assert desk.writer.state is State.CLOSED


def test_a_full_partition_refuses_more_and_takes_it_again_when_bytes_are_in_the_store() -> None:
    desk = Desk(replace(QUICK, held_bytes_max=150))
    desk.append(1)
    desk.append(2)
    desk.append(3)
    assert desk.error(3) is ErrorCode.NOT_ENOUGH_REPLICAS
    held = desk.writer.bytes_held
    assert 0 < held <= 150
    desk.tick()
    desk.upload()
    assert desk.writer.bytes_held == 0
    desk.append(4)
    assert 4 not in desk.replies


def test_a_stepped_down_writer_refuses_and_says_so_once() -> None:
    desk = Desk()
    desk.do(desk.writer.step_down, StepDownReason.ORDERED)
    desk.do(desk.writer.step_down, StepDownReason.ORDERED)
    assert len(desk.pop(SteppedDown)) == 1
    desk.append(1)
    assert desk.error(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert desk.writer.next_deadline() is None


# --- idempotence in flight ---------------------------------------------------------------------------


def numbered(seq: int, pid: int = 7) -> memoryview:
    return one_batch(producer_id=pid, producer_epoch=0, base_sequence=seq)


def test_a_repeat_in_flight_shares_the_outcome_of_the_original() -> None:
    desk = Desk()
    desk.append(1, numbered(0))
    desk.append(2, numbered(0))
    desk.tick()
    desk.append(3, numbered(0))
    desk.upload()
    desk.append(4, numbered(0))
    assert desk.replies == {}
    assert desk.commit().head.next == 1
    desk.append(5, numbered(0))
    assert {desk.replies[token].base_offset for token in range(1, 6)} == {0}
    assert {desk.error(token) for token in range(1, 6)} == {ErrorCode.NONE}


def test_a_gap_is_called_only_after_a_transaction_proved_ownership() -> None:
    desk = Desk()
    desk.write(1, numbered(0))
    desk.append(2, numbered(5))
    assert 2 not in desk.replies
    desk.tick()
    proof = desk.commit()
    assert proof.head == replace(proof.head, tail=desk.writer.head.tail, next=1), "it changes nothing"
    assert desk.error(2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_seen_by_a_writer_that_lost_its_partition_is_not_leader() -> None:
    desk = Desk()
    desk.write(1, numbered(0))
    desk.append(2, numbered(5))
    desk.tick()
    txn = desk.one(CommitHead).txn
    desk.do(desk.writer.commit_refused, txn, Head(epoch=4, topic="t"), 150, ambiguous=False)
    assert desk.error(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_older_producer_epoch_is_refused_at_once() -> None:
    desk = Desk()
    desk.append(1, one_batch(producer_id=7, producer_epoch=2, base_sequence=0))
    desk.append(2, numbered(1))
    assert desk.error(2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_log_append_time_never_goes_back_and_repeats_tell_the_original_one() -> None:
    desk = Desk(replace(QUICK, log_append_time=True))
    desk.write(1, numbered(0))
    desk.now_ms -= 500
    desk.write(2, numbered(1))
    desk.append(3, numbered(0))
    times = [desk.replies[token].log_append_time_ms for token in (1, 2, 3)]
    assert times[0] > 1_700_000_000_000
    assert times[1] == times[0] == times[2]


# --- checkpoints -------------------------------------------------------------------------------------


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
    assert plan.snapshot.producers[0].batches[-1].last_seq == 24


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
    desk.do(desk.writer.checkpoint_failed, first.plan)
    assert not desk.pop(TakeCheckpoint)
    assert desk.writer.next_deadline() == desk.now_ms + 1_000
    desk.tick(1_000)
    second = desk.one(TakeCheckpoint)
    assert second.plan != first.plan
    desk.do(desk.writer.checkpoint_ready, first.plan, "late", META)
    assert not desk.pop(CommitHead), "the answer of a plan that was given up"


def test_a_checkpoint_refused_because_meta_moved_is_planned_anew() -> None:
    desk = desk_with_tail(25)
    plan = desk.one(TakeCheckpoint)
    desk.do(desk.writer.checkpoint_ready, plan.plan, "snap", META)
    commit = desk.one(CommitHead)
    desk.do(desk.writer.commit_refused, commit.txn, desk.writer.head, desk.writer.revision, ambiguous=True)
    assert desk.writer.state is State.SERVING
    desk.tick(1_000)
    desk.one(TakeCheckpoint)


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


# --- hand-over ---------------------------------------------------------------------------------------


def test_a_hand_over_refuses_commits_what_it_has_snapshots_and_is_drained() -> None:
    desk = Desk(S3)
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
    desk.do(desk.writer.checkpoint_failed, desk.one(TakeCheckpoint).plan)
    desk.one(Drained)
    assert desk.writer.state is State.DRAINED


def test_limits_may_change_while_it_runs() -> None:
    desk = Desk(S3)
    desk.append(1)
    desk.do(desk.writer.configure, replace(S3, linger_min_ms=0))
    assert len(desk.pop(PutObject)) == 2


def test_acknowledgements_tell_the_log_start() -> None:
    desk = Desk()
    desk.writer.moved_log_start(5)
    desk.writer.moved_log_start(3)
    desk.write(1)
    assert desk.replies[1].log_start_offset == 5
