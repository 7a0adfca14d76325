"""A writer and transactions: what is appended, what is refused, and what a marker is."""

from __future__ import annotations

from dataclasses import replace

from kafscale.log.heads import Aborted, Head, OpenTransaction
from kafscale.log.transactions import events_in, stored_batches
from kafscale.produce.log.joins import OPEN_MAX
from kafscale.produce.log.model import CommitHead, TransactionEnd
from kafscale.produce.log.settling import ENTRY_ABORTS_MAX
from kafscale.wire.errors import ErrorCode
from writer_desk import GATHERING, HEAD, Desk, numbered, one_batch

WALL_MS = 1_700_000_000_000


def of_transaction(seq: int, pid: int = 7, epoch: int = 0) -> memoryview:
    return one_batch(producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=True)


def desk_of(head: Head = HEAD) -> Desk:
    return Desk(replace(GATHERING, transactions=True), head=head)


def join(desk: Desk, number: int = 4, pid: int = 7, epoch: int = 0) -> bool:
    desk.writer.joins.asked(pid)
    return desk.writer.joins.answered(pid, epoch, number)


def append(desk: Desk, token: int, data: memoryview, *, adds: bool = False) -> None:
    desk.do(desk.writer.append, token, data, deadline_ms=desk.now_ms + 30_000, adds=adds)


def end(
    desk: Desk, token: int, *, pid: int = 7, number: int = 4, commit: bool = False, epoch: int = 0
) -> None:
    decided = TransactionEnd(
        producer_id=pid, number=number, commit=commit, marker_epoch=epoch, coordinator_epoch=2
    )
    desk.do(desk.writer.end_transaction, token, decided, deadline_ms=desk.now_ms + 2_000)


def needs_join(desk: Desk, data: memoryview) -> bool:
    return desk.writer.needs_join(data, zstd_allowed=True)


def commit(desk: Desk) -> CommitHead:
    desk.store(desk.seal())
    return desk.commit()


def begun(first: int, number: int = 4, pid: int = 7) -> OpenTransaction:
    return OpenTransaction(producer_id=pid, epoch=0, number=number, first=first)


def test_the_first_batch_begins_and_the_marker_ends() -> None:
    desk = desk_of()
    assert join(desk)
    append(desk, 1, of_transaction(0))
    append(desk, 2, of_transaction(1))
    head = commit(desk).head
    assert (head.open, head.lso, head.next, head.transactional) == ((begun(0),), 0, 2, True)
    end(desk, 3)
    flight = desk.seal()
    assert flight.transactional
    desk.store(flight)
    head = desk.commit().head
    assert (head.open, head.lso, head.next) == ((), 3, 3)
    assert head.tail[-1].aborted == (Aborted(producer_id=7, first=0, last=2),)
    assert [desk.error(token) for token in (1, 2, 3)] == [ErrorCode.NONE] * 3
    assert (desk.replies[3].base_offset, head.tail[-1].max_ts) == (2, WALL_MS + desk.now_ms)


def test_a_marker_is_an_ordinary_batch_in_its_slice() -> None:
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    end(desk, 2, commit=True)
    flight = desk.seal()
    assert flight.home.built is not None  # type: ignore[union-attr]
    data = b"".join(flight.home.built.body)  # type: ignore[union-attr]
    batches = list(stored_batches(data))
    assert [(header.base_offset, header.partition_leader_epoch) for header, _ in batches] == [(0, 3), (1, 3)]
    assert [event.producer_id for event in events_in(batches)] == [7, 7]
    assert flight.records == 2


def test_without_the_setting_a_batch_of_a_transaction_is_refused() -> None:
    desk = Desk(GATHERING)
    assert not needs_join(desk, of_transaction(0)), "it is refused anyway"
    append(desk, 1, of_transaction(0))
    assert desk.error(1) is ErrorCode.INVALID_REQUEST


def test_a_transaction_needs_a_join_and_nothing_else_may_come_between() -> None:
    desk = desk_of()
    append(desk, 1, of_transaction(0))
    join(desk)
    append(desk, 2, of_transaction(0))
    append(desk, 3, numbered(1))
    append(desk, 4, of_transaction(0, epoch=1))
    append(desk, 5, of_transaction(0))
    commit(desk)
    assert [desk.error(token) for token in range(1, 6)] == [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NONE,  # a repeat
    ]
    assert desk.writer.head.next == 1


def test_the_coordinator_is_asked_once_and_not_about_what_is_answered_without_it() -> None:
    desk = desk_of()
    assert needs_join(desk, of_transaction(0))
    assert not needs_join(desk, numbered(0)), "it is of no transaction"
    assert not needs_join(desk, memoryview(bytes(of_transaction(0))[:-1])), "it is no batch"
    join(desk)
    assert not needs_join(desk, of_transaction(0))
    append(desk, 1, of_transaction(0))
    assert not needs_join(desk, of_transaction(1))
    end(desk, 2, epoch=1)
    assert not needs_join(desk, of_transaction(1)), "its epoch is over"
    assert needs_join(desk, of_transaction(0, epoch=1))
    desk.do(desk.writer.begin_handoff)
    assert not needs_join(desk, of_transaction(0, epoch=1))


def test_a_repeat_is_answered_without_a_question() -> None:
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    end(desk, 2)
    assert not needs_join(desk, of_transaction(0))
    append(desk, 3, of_transaction(0))
    commit(desk)
    assert (desk.error(3), desk.replies[3].base_offset) == (ErrorCode.NONE, 0)
    assert needs_join(desk, of_transaction(1)), "the next one of the same epoch"


def test_an_end_takes_the_join_back_also_one_that_is_on_its_way() -> None:
    desk = desk_of()
    join(desk)
    end(desk, 1)
    assert needs_join(desk, of_transaction(0))
    desk.writer.joins.asked(7)
    end(desk, 2, number=5)
    assert not desk.writer.joins.answered(7, 0, 5), "the answer and the end crossed"
    assert needs_join(desk, of_transaction(0))
    desk.writer.joins.asked(7)
    end(desk, 3, number=5)
    assert desk.writer.joins.answered(7, 0, 6)
    end(desk, 4, number=5)
    assert not needs_join(desk, of_transaction(0)), "an older end says nothing about a newer transaction"


def test_a_join_of_another_transaction_than_the_open_one_is_refused() -> None:
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    assert not join(desk, number=5, epoch=1)
    assert not join(desk, epoch=1)
    assert join(desk)


def test_of_joins_that_no_batch_follows_the_oldest_are_forgotten() -> None:
    desk = desk_of()
    for pid in range(OPEN_MAX + 1):
        assert join(desk, pid=pid)
    assert [needs_join(desk, of_transaction(0, pid=pid)) for pid in (0, 1)] == [True, False]


def test_a_partition_has_a_bounded_number_of_open_transactions() -> None:
    open_ = tuple(begun(n, pid=100 + n) for n in range(OPEN_MAX))
    head = Head(epoch=3, topic="t", owner="1/boot", next=OPEN_MAX, lso=0, open=open_, transactional=True)
    desk = desk_of(head)
    join(desk)
    append(desk, 1, of_transaction(0))
    append(desk, 2, of_transaction(0, pid=100))
    end(desk, 3, pid=101)
    append(desk, 4, of_transaction(0))
    commit(desk)
    assert desk.error(1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [desk.error(token) for token in (2, 3, 4)] == [ErrorCode.NONE] * 3


def test_a_tv2_producer_without_history_begins_at_sequence_0() -> None:
    """Kafka: so a batch that is missing before it cannot go unnoticed. With TV1 the history may have expired."""
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(3), adds=True)
    desk.tick()
    desk.commit()
    assert desk.error(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(desk, 2, numbered(3, pid=8), adds=True)
    append(desk, 3, of_transaction(3))
    commit(desk)
    assert [desk.error(token) for token in (2, 3)] == [ErrorCode.NONE] * 2


def test_the_end_of_what_is_not_open_is_proven_by_a_transaction_that_was_sent_after_it_came() -> None:
    desk = desk_of()
    append(desk, 1, numbered(0, pid=9))
    desk.store(desk.seal())
    end(desk, 2)
    desk.commit()
    assert 2 not in desk.replies, "that one was sent before"
    desk.commit()
    assert (desk.error(2), desk.replies[2].base_offset) == (ErrorCode.NONE, -1)


def test_an_end_is_not_proven_by_an_owner_that_has_lost_its_partition() -> None:
    desk = desk_of()
    end(desk, 1)
    desk.tick()
    sent = desk.one(CommitHead)
    other = replace(HEAD, epoch=4, open=(begun(0),), transactional=True)
    desk.do(desk.writer.commit_refused, sent.txn, other, desk.revision + 1, ambiguous=False)
    assert desk.error(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_repeated_end_waits_for_the_marker_that_is_on_its_way() -> None:
    """A commit of what was assigned before the marker proves nothing about it."""
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    first = desk.seal()
    end(desk, 2)
    second = desk.seal()
    end(desk, 3)
    desk.store(first)
    desk.commit()
    assert desk.replies.keys() == {1}
    end(desk, 4)
    desk.store(second)
    desk.commit()
    assert [desk.error(token) for token in (2, 3, 4)] == [ErrorCode.NONE] * 3
    assert desk.replies[4].base_offset == 1
    assert desk.writer.head.next == 2, "there is one marker"


def test_an_end_of_another_number_or_producer_ends_nothing() -> None:
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    end(desk, 2, number=3)
    end(desk, 3, pid=8)
    head = commit(desk).head
    assert head.open == (begun(0),)
    assert [desk.error(token) for token in (1, 2, 3)] == [ErrorCode.NONE] * 3


def test_an_end_without_proof_in_time_has_no_known_outcome() -> None:
    desk = desk_of()
    end(desk, 1)
    desk.tick(2_000)
    assert desk.error(1) is ErrorCode.REQUEST_TIMED_OUT


def test_a_marker_that_raises_the_epoch_fences_the_producers_older_batches() -> None:
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    end(desk, 2, epoch=1)
    append(desk, 3, of_transaction(1))
    join(desk, number=5, epoch=1)
    append(desk, 4, of_transaction(0, epoch=1))
    head = commit(desk).head
    assert desk.error(3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert head.open == (OpenTransaction(producer_id=7, epoch=1, number=5, first=2),)


def test_a_new_owner_goes_on_with_what_the_head_says_is_open() -> None:
    open_ = (begun(5, number=4), begun(8, number=9, pid=8))
    desk = desk_of(Head(epoch=3, topic="t", owner="1/boot", next=10, lso=5, open=open_, transactional=True))
    end(desk, 1, pid=8, number=9, commit=True)
    committed = commit(desk).head
    assert (committed.open, committed.lso) == (open_[:1], 5)
    assert not needs_join(desk, of_transaction(0)), "it has joined before the claim"
    append(desk, 2, of_transaction(0))
    assert commit(desk).head.open == open_[:1]


def test_a_writer_that_hands_over_takes_no_end() -> None:
    desk = desk_of()
    join(desk)
    append(desk, 1, of_transaction(0))
    desk.do(desk.writer.begin_handoff)
    end(desk, 2)
    assert desk.error(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_buffer_with_as_many_aborts_as_an_entry_lists_is_sealed() -> None:
    desk = desk_of()
    for number in range(ENTRY_ABORTS_MAX):
        join(desk, pid=number)
        append(desk, 2 * number, of_transaction(0, pid=number))
        end(desk, 2 * number + 1, pid=number)
    assert desk.writer.wants() is None
    desk.upload()
    (entry,) = desk.commit().head.tail
    assert not entry.is_slice
    assert len(entry.aborted) == ENTRY_ABORTS_MAX


def test_a_marker_does_not_linger_unless_records_of_the_partition_are_on_their_way() -> None:
    desk = Desk(replace(GATHERING, transactions=True, linger_ms=90))
    join(desk)
    append(desk, 1, of_transaction(0))
    wanted = desk.writer.wants()
    assert wanted is not None
    assert (wanted.hold_ms, wanted.markers) == (90, False)
    flight = desk.seal()
    end(desk, 2)
    wanted = desk.writer.wants()
    assert wanted is not None
    assert (wanted.hold_ms, wanted.markers) == (250, True)
    desk.store(flight)
    desk.commit()
    wanted = desk.writer.wants()
    assert wanted is not None
    assert (wanted.hold_ms, wanted.markers) == (0, True)
