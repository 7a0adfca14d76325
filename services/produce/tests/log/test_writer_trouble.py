"""The partition writer when stores fail, names are taken, time runs out, and batches come twice."""

from dataclasses import replace

import pytest
from kafscale.log.heads import Head
from kafscale.produce.log.model import (
    CommitHead,
    HeadObject,
    MetaWrite,
    Part,
    PutFailure,
    PutObject,
    State,
    StepDownReason,
    SteppedDown,
)
from kafscale.produce.log.producers import ProducerBounds, ProducerTable
from kafscale.produce.log.uploading import FoundObject, Tried
from kafscale.storage.objects import IfAbsent, IfMatch
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from writer_desk import GATHERING, HEAD, QUICK, Desk, numbered, one_batch

META = MetaWrite(expected_revision=0, value=b"")


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


def test_a_store_that_takes_no_condition_for_fulfilled_is_asked_less_and_less_often() -> None:
    desk, _ = desk_with_conflict()
    waits = []
    for turn in range(8):
        desk.do(desk.writer.object_found, 0, Part.SEGMENT, found(2, b"x" * 16, etag=f"there-{turn}"))
        before_ms = desk.now_ms
        while not any(put.part is Part.SEGMENT for put in desk.actions if isinstance(put, PutObject)):
            due_ms = desk.writer.next_deadline()
            assert due_ms is not None
            desk.tick(max(1, due_ms - desk.now_ms))
        waits.append(desk.now_ms - before_ms)
        desk.conflict(0)
    assert waits[0] == 0, "another program's request may have come in between"
    assert 0 < waits[1] < waits[3] < waits[5] <= 2_000


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


def desk_that_waited() -> Desk:
    """A PUT failed once, and now comes the next one's outcome, 100 s later."""
    desk = Desk()
    desk.append(1, within_ms=600_000)
    desk.tick()
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    desk.tick(100_000)
    return desk


def test_the_wait_for_a_place_is_no_time_without_the_store() -> None:
    desk = desk_that_waited()
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT, tried=Tried(waited_ms=50_000))
    assert desk.writer.state is State.SERVING
    desk.tick(20_000)
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    assert desk.stopped() is StepDownReason.STORE_UNAVAILABLE


def test_a_put_whose_bytes_moved_is_no_time_without_the_store() -> None:
    desk = desk_that_waited()
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT, tried=Tried(moved=True))
    assert desk.writer.state is State.SERVING
    desk.tick(60_000)
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    assert desk.stopped() is StepDownReason.STORE_UNAVAILABLE


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
    desk.upload(only=1)
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


def test_a_repeat_of_a_committed_batch_and_one_in_flight_waits_for_the_second() -> None:
    """Two batches that were sent apart are offered again in one record set."""
    desk = Desk()
    desk.write(1, numbered(0))
    desk.append(2, numbered(1))
    desk.tick()
    desk.append(3, memoryview(bytes(numbered(0)) + bytes(numbered(1))))
    assert 3 not in desk.replies, "half of it is not committed"
    desk.upload()
    desk.commit()
    assert (desk.error(3), desk.replies[3].base_offset) == (ErrorCode.NONE, 0)


def test_a_batch_of_a_new_producer_is_refused_where_all_that_are_known_have_batches_on_their_way() -> None:
    desk = Desk(GATHERING, producers=ProducerTable(ProducerBounds(ids_max=2)))
    for token in (1, 2, 3):
        desk.append(token, numbered(0, pid=token))
    assert desk.error(3) is ErrorCode.NOT_ENOUGH_REPLICAS
    desk.append(4, one_batch())
    desk.store(desk.seal())
    desk.commit()
    assert [desk.error(token) for token in (1, 2, 4)] == [ErrorCode.NONE] * 3
    desk.append(5, numbered(0, pid=3))
    desk.store(desk.seal())
    desk.commit()
    assert (desk.error(5), desk.replies[5].base_offset) == (ErrorCode.NONE, 3)


def test_log_append_time_never_goes_back_and_repeats_tell_the_original_one() -> None:
    desk = Desk(replace(QUICK, log_append_time=True))
    desk.write(1, numbered(0))
    desk.now_ms -= 500
    desk.write(2, numbered(1))
    desk.append(3, numbered(0))
    times = [desk.replies[token].log_append_time_ms for token in (1, 2, 3)]
    assert times[0] > 1_700_000_000_000
    assert times[1] == times[0] == times[2]


def test_a_log_whose_newest_time_is_far_ahead_does_not_hold_the_append_time_there() -> None:
    head = replace(HEAD, max_ts=9_000_000_000_000)
    desk = Desk(replace(QUICK, log_append_time=True), head=head)
    desk.write(1)
    assert desk.replies[1].log_append_time_ms == desk.now().wall_ms


def test_the_append_time_is_not_before_the_records_of_the_time_when_clients_gave_theirs() -> None:
    ahead_ms = 1_700_000_000_000 + 60_000
    client_time = memoryview(build_batch([Record(value=b"v", timestamp=ahead_ms)]))
    desk = Desk(GATHERING)
    desk.append(1, client_time)
    desk.writer.configure(replace(GATHERING, log_append_time=True), desk.now())
    desk.append(2)  # into the same slice
    desk.store(desk.seal())
    desk.commit()
    desk.append(3)
    desk.store(desk.seal())
    desk.commit()
    assert desk.now().wall_ms < ahead_ms
    assert desk.replies[1].log_append_time_ms == -1
    assert desk.replies[2].log_append_time_ms >= ahead_ms
    assert desk.replies[3].log_append_time_ms >= desk.replies[2].log_append_time_ms


def test_the_append_time_is_not_before_what_was_sealed_when_clients_gave_the_times() -> None:
    ahead_ms = 1_700_000_000_000 + 60_000
    desk = Desk(QUICK)
    desk.write(1, memoryview(build_batch([Record(value=b"v", timestamp=ahead_ms)])))
    desk.writer.configure(replace(QUICK, log_append_time=True), desk.now())
    desk.write(2)
    assert desk.now().wall_ms < ahead_ms
    assert desk.replies[2].log_append_time_ms == ahead_ms


def test_append_times_keep_their_order_also_below_a_clients_time_that_is_far_ahead() -> None:
    desk = Desk(replace(QUICK, log_append_time=True), head=replace(HEAD, max_ts=9_000_000_000_000))
    desk.write(1)
    desk.now_ms -= 500
    desk.write(2)
    assert desk.replies[2].log_append_time_ms == desk.replies[1].log_append_time_ms


def test_a_put_that_is_repeated_has_the_append_time_of_the_first() -> None:
    desk = Desk(replace(QUICK, log_append_time=True))
    desk.append(1)
    desk.tick()
    first = desk.pop(PutObject)
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    desk.tick(5_000)
    again = desk.one(PutObject)
    assert again.part is Part.SEGMENT
    assert b"".join(again.body) == b"".join(next(put for put in first if put.part is again.part).body)


def test_only_silence_without_any_answer_counts_towards_giving_up() -> None:
    desk = Desk()
    desk.append(1, within_ms=600_000)
    desk.tick()
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    desk.tick(59_000)
    desk.conflict(0)
    desk.do(desk.writer.object_found, 0, Part.SEGMENT, None)
    desk.tick(59_000)
    desk.do(desk.writer.upload_unknown, 0, Part.SEGMENT)
    assert desk.writer.state is State.SERVING
