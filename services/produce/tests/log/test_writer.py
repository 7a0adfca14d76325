"""The partition writer, step by step: from append to acknowledgement."""

from dataclasses import replace

import pytest
from kafscale.log.heads import EpochStart, Head, decode_head
from kafscale.produce.log.model import (
    CommitHead,
    Limits,
    MetaWrite,
    Part,
    Published,
    PutObject,
    State,
    StepDownReason,
    Want,
)
from kafscale.produce.log.producers import IN_FLIGHT_MAX
from kafscale.storage.objects import IfAbsent
from kafscale.wire.errors import ErrorCode
from writer_desk import GATHERING, Desk, numbered, one_batch

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


def test_what_waits_for_a_bundle_is_one_slice() -> None:
    desk = Desk(GATHERING)
    for token in range(5):
        desk.append(token)
    assert not desk.actions
    desk.store(desk.seal())
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


@pytest.mark.parametrize(("linger_ms", "hold_ms"), [(0, 0), (90, 90), (1_000, 250)])
def test_a_buffer_is_kept_out_of_bundles_by_its_topics_linger_and_by_its_own_flights(
    linger_ms: int, hold_ms: int
) -> None:
    desk = Desk(replace(GATHERING, linger_ms=linger_ms))
    size = len(one_batch())
    assert desk.writer.wants() is None
    desk.append(1)
    desk.now_ms += 7
    desk.append(2)
    assert desk.writer.wants() == Want(2 * size, 2, since_ms=desk.now_ms - 7, hold_ms=hold_ms)
    flight = desk.seal()
    desk.append(3)
    under_way = Want(size, 1, since_ms=desk.now_ms, hold_ms=250)
    assert desk.writer.wants() == under_way
    desk.store(flight)
    assert desk.writer.wants() == under_way, "in a transaction"
    desk.commit()
    assert desk.writer.wants() == under_way._replace(hold_ms=hold_ms)


def test_a_full_pipeline_wants_no_place_in_a_bundle() -> None:
    desk = Desk(replace(GATHERING, pipeline_max=2))
    flights = []
    for token in range(2):
        desk.append(token)
        flights.append(desk.seal())
    desk.append(2)
    assert desk.writer.wants() is None
    desk.store(flights[0])
    assert desk.writer.wants() is not None


@pytest.mark.parametrize("bound", ["segment_bytes", "seal_bytes_max", "direct_bytes"])
def test_a_full_buffer_is_sealed_by_the_append_that_fills_it(bound: str) -> None:
    desk = Desk(replace(GATHERING, **{bound: 150}))
    desk.append(1)
    desk.append(2)
    desk.append(3)
    assert {put.base for put in desk.pop(PutObject)} == {0}


def test_one_producer_with_tiny_batches_does_not_fill_a_partition() -> None:
    """What goes beyond its bound is refused until a commit; a repeat takes no room, other producers have theirs."""
    desk = Desk(GATHERING)
    for seq in range(IN_FLIGHT_MAX):
        desk.append(seq, numbered(seq))
    desk.append(IN_FLIGHT_MAX, numbered(IN_FLIGHT_MAX))
    assert desk.error(IN_FLIGHT_MAX) is ErrorCode.NOT_ENOUGH_REPLICAS
    desk.append(IN_FLIGHT_MAX + 1, numbered(0))
    desk.append(IN_FLIGHT_MAX + 2, numbered(0, pid=8))
    assert set(desk.replies) == {IN_FLIGHT_MAX}
    desk.store(desk.seal())
    desk.commit()
    desk.append(IN_FLIGHT_MAX + 3, numbered(IN_FLIGHT_MAX))
    desk.store(desk.seal())
    desk.commit()
    assert [desk.error(token) for token in (0, IN_FLIGHT_MAX + 1, IN_FLIGHT_MAX + 3)] == [ErrorCode.NONE] * 3


def test_segment_bytes_lower_the_seal() -> None:
    assert Limits(segment_bytes=1000).seal_bytes == 1000
    assert Limits().seal_bytes == 4 << 20


def test_at_most_four_segments_upload_at_once_and_the_next_waits_its_turn() -> None:
    desk = Desk()
    for token in range(6):
        desk.append(token)
    assert {put.base for put in desk.actions if isinstance(put, PutObject)} == {0, 1, 2, 3}
    desk.upload(only=0)
    desk.commit()
    assert {put.base for put in desk.actions if isinstance(put, PutObject)} == {1, 2, 3, 4}


# --- commits -------------------------------------------------------------------------------------


def test_segments_commit_in_offset_order_whatever_order_their_uploads_end_in() -> None:
    desk = Desk()
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
