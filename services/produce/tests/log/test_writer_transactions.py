"""A writer and transactions: what is appended, what is refused, and what a marker is."""

from __future__ import annotations

from kafscale.log.heads import Aborted, Head, OpenTransaction
from kafscale.log.transactions import events_in, stored_batches
from kafscale.produce.log.model import CommitHead, TransactionEnd
from kafscale.produce.log.settling import ENTRY_ABORTS_MAX
from kafscale.wire.errors import ErrorCode
from writer_desk import GATHERING, HEAD, Desk, numbered, one_batch

WALL_MS = 1_700_000_000_000


def of_transaction(seq: int, pid: int = 7, epoch: int = 0) -> memoryview:
    return one_batch(producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=True)


def append(desk: Desk, token: int, data: memoryview, number: int | None) -> None:
    desk.do(desk.writer.append, token, data, deadline_ms=desk.now_ms + 30_000, number=number)


def end(
    desk: Desk, token: int, *, pid: int = 7, number: int = 4, commit: bool = False, epoch: int = 0
) -> bool:
    decided = TransactionEnd(
        producer_id=pid, number=number, commit=commit, marker_epoch=epoch, coordinator_epoch=2
    )
    done = desk.writer.end_transaction(token, decided, deadline_ms=desk.now_ms + 30_000, now=desk.now())
    desk.take()
    return done


def commit(desk: Desk) -> CommitHead:
    desk.store(desk.seal())
    return desk.commit()


def begun(first: int, number: int = 4, pid: int = 7) -> OpenTransaction:
    return OpenTransaction(producer_id=pid, epoch=0, number=number, first=first)


def test_the_first_batch_begins_and_the_marker_ends() -> None:
    desk = Desk(GATHERING)
    append(desk, 1, of_transaction(0), 4)
    append(desk, 2, of_transaction(1), 4)
    head = commit(desk).head
    assert (head.open, head.lso, head.next, head.transactional) == ((begun(0),), 0, 2, True)
    assert end(desk, 3)
    flight = desk.seal()
    assert flight.transactional
    desk.store(flight)
    head = desk.commit().head
    assert (head.open, head.lso, head.next) == ((), 3, 3)
    assert head.tail[-1].aborted == (Aborted(producer_id=7, first=0, last=2),)
    assert [desk.error(token) for token in (1, 2, 3)] == [ErrorCode.NONE] * 3
    assert (desk.replies[3].base_offset, head.tail[-1].max_ts) == (2, WALL_MS + desk.now_ms)


def test_a_marker_is_an_ordinary_batch_in_its_slice() -> None:
    desk = Desk(GATHERING)
    append(desk, 1, of_transaction(0), 4)
    assert end(desk, 2, commit=True)
    flight = desk.seal()
    assert flight.home.built is not None  # type: ignore[union-attr]
    data = b"".join(flight.home.built.body)  # type: ignore[union-attr]
    batches = list(stored_batches(data))
    assert [(header.base_offset, header.partition_leader_epoch) for header, _ in batches] == [(0, 3), (1, 3)]
    assert [event.producer_id for event in events_in(batches)] == [7, 7]
    assert flight.records == 2


def test_a_transaction_needs_a_join_and_nothing_else_may_come_between() -> None:
    desk = Desk(GATHERING)
    append(desk, 1, of_transaction(0), None)
    append(desk, 2, of_transaction(0), 4)
    append(desk, 3, numbered(1), None)
    append(desk, 4, of_transaction(1), 5)
    append(desk, 5, of_transaction(0), 4)
    commit(desk)
    assert [desk.error(token) for token in range(1, 6)] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NONE,  # a repeat
    ]
    assert desk.writer.head.next == 1


def test_an_end_of_another_number_does_nothing() -> None:
    desk = Desk(GATHERING)
    assert not end(desk, 1)
    append(desk, 2, of_transaction(0), 4)
    assert not end(desk, 3, number=3)
    assert not end(desk, 4, pid=8)
    assert end(desk, 5)
    assert not end(desk, 6)
    commit(desk)
    assert desk.replies.keys() == {2, 5}


def test_a_marker_that_raises_the_epoch_fences_the_producers_older_batches() -> None:
    desk = Desk(GATHERING)
    append(desk, 1, of_transaction(0), 4)
    assert end(desk, 2, epoch=1)
    append(desk, 3, of_transaction(1), 4)
    append(desk, 4, of_transaction(0, epoch=1), 5)
    head = commit(desk).head
    assert desk.error(3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert head.open == (OpenTransaction(producer_id=7, epoch=1, number=5, first=2),)


def test_a_new_owner_goes_on_with_what_the_head_says_is_open() -> None:
    open_ = (begun(5, number=4), begun(8, number=9, pid=8))
    head = Head(epoch=3, topic="t", owner="1/boot", next=10, lso=5, open=open_, transactional=True)
    desk = Desk(GATHERING, head=head)
    assert end(desk, 1, pid=8, number=9, commit=True)
    committed = commit(desk).head
    assert (committed.open, committed.lso) == (open_[:1], 5)
    append(desk, 2, of_transaction(0), 4)
    assert commit(desk).head.open == open_[:1]


def test_a_writer_that_hands_over_takes_no_end() -> None:
    desk = Desk(GATHERING, head=HEAD)
    append(desk, 1, of_transaction(0), 4)
    desk.do(desk.writer.begin_handoff)
    assert not end(desk, 2)


def test_a_buffer_with_as_many_aborts_as_an_entry_lists_is_sealed() -> None:
    desk = Desk(GATHERING)
    for number in range(ENTRY_ABORTS_MAX):
        append(desk, 2 * number, of_transaction(0, pid=number), 4)
        assert end(desk, 2 * number + 1, pid=number, commit=False)
    assert desk.writer.wants() is None
    desk.upload()
    (entry,) = desk.commit().head.tail
    assert not entry.is_slice
    assert len(entry.aborted) == ENTRY_ABORTS_MAX
