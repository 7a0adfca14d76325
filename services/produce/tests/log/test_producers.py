"""Idempotence: what a producer's sequence numbers mean to the owner of a partition."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.heads import OpenTransaction
from kafscale.log.snapshots import BATCHES_MAX, EXPIRY_MS, decode_snapshot
from kafscale.produce.log.producer_budget import ProducerBudget
from kafscale.produce.log.producers import (
    BATCH_BYTES,
    IN_FLIGHT_MAX,
    MARKER_BYTES,
    PRODUCER_BYTES,
    SEQUENCE_MASK,
    STEP_PRODUCERS,
    ProducerBounds,
    ProducerTable,
    Repeat,
    sequence_after,
)
from kafscale.wire.batches import CONTROL, TRANSACTIONAL, BatchHeader
from kafscale.wire.errors import ErrorCode
from kafscale.wire.markers import Marker
from writer_truth import read_back, taken

PID = 7
COMMITTED = 1 << 40


def header(base: int, seq: int, count: int = 1, *, pid: int = PID, epoch: int = 0) -> BatchHeader:
    return BatchHeader(
        base_offset=base,
        batch_length=0,
        partition_leader_epoch=1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=9,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=seq,
        records_count=count,
    )


def unmarked(headers: Iterable[BatchHeader]) -> Iterator[tuple[BatchHeader, None]]:
    return ((header, None) for header in headers)


def table_of(*headers: BatchHeader) -> ProducerTable:
    table = ProducerTable()
    table.replay(unmarked(headers), wall_ms=0)
    return table


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    assert ProducerTable().judge(PID, 3, 4_711, 4_711) is ErrorCode.NONE


def test_the_next_sequence_is_accepted() -> None:
    assert table_of(header(0, 0, 3)).judge(PID, 0, 3, 5) is ErrorCode.NONE


def test_a_gap_is_out_of_order() -> None:
    assert table_of(header(0, 0, 3)).judge(PID, 0, 4, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeat_gets_the_original_offset() -> None:
    known = table_of(header(0, 0, 3), header(10, 3, 2)).judge(PID, 0, 3, 4)
    assert isinstance(known, Repeat)
    assert known.base == 10


def test_the_repeat_of_neighbouring_batches_in_one_request_gets_the_first_offset() -> None:
    known = table_of(header(0, 0, 3), header(3, 3, 2), header(5, 5)).judge(PID, 0, 0, 4)
    assert isinstance(known, Repeat)
    assert known.base == 0


def test_a_batch_that_overlaps_a_known_one_is_out_of_order_and_not_dropped() -> None:
    table = table_of(header(0, 0, 3))
    assert table.judge(PID, 0, 2, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.judge(PID, 0, 1, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeat_older_than_the_last_five_is_called_a_duplicate() -> None:
    table = table_of(*(header(n, n) for n in range(7)))
    assert isinstance(table.judge(PID, 0, 2, 2), Repeat)
    assert table.judge(PID, 0, 1, 1) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_sequence_from_before_the_table_knew_the_producer_is_not_called_written() -> None:
    """A client drops a batch called duplicate; this one may never have arrived."""
    assert table_of(header(0, 5)).judge(PID, 0, 4, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_producer_epoch_is_fenced() -> None:
    assert table_of(header(0, 0, epoch=2)).judge(PID, 1, 0, 0) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("seq", "error"), [(0, ErrorCode.NONE), (1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
def test_a_newer_producer_epoch_starts_at_sequence_zero(seq: int, error: ErrorCode) -> None:
    assert table_of(header(0, 0, 3)).judge(PID, 1, seq, seq) is error


def test_a_repeat_is_not_looked_for_in_an_older_epoch() -> None:
    table = table_of(header(0, 5, epoch=0), header(1, 0, epoch=1))
    assert table.judge(PID, 1, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_after_the_greatest() -> None:
    table = table_of(header(0, SEQUENCE_MASK - 1, 2))
    assert table.judge(PID, 0, 0, 0) is ErrorCode.NONE
    inside = table_of(header(0, SEQUENCE_MASK, 3))
    assert inside.judge(PID, 0, 2, 2) is ErrorCode.NONE
    assert isinstance(inside.judge(PID, 0, SEQUENCE_MASK, 1), Repeat)


def test_all_batches_in_flight_and_five_committed_ones_are_remembered() -> None:
    table = ProducerTable()
    for n in range(20):
        table.record(PID, 0, n, n, n, 0, wall_ms=0, committed=10)
    assert isinstance(table.judge(PID, 0, 5, 5), Repeat)
    assert table.judge(PID, 0, 4, 4) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    snapshot = taken(table, 10)
    assert [batch.base for batch in snapshot.producers[0].batches] == [5, 6, 7, 8, 9]


def test_a_snapshot_leaves_out_what_is_not_committed() -> None:
    table = table_of(header(0, 0))
    table.record(PID, 1, 0, 0, 1, 0, wall_ms=0, committed=1)
    table.record(8, 0, 0, 0, 2, 0, wall_ms=0, committed=1)
    snapshot = taken(table, 1)
    assert [(entry.producer_id, entry.epoch) for entry in snapshot.producers] == [(PID, 0)]


def test_replay_passes_over_what_the_snapshot_covers() -> None:
    table = ProducerTable.restore(taken(table_of(header(0, 0), header(1, 1)), 2))
    table.replay(unmarked([header(1, 1), header(2, 2), header(3, -1, pid=-1)]), wall_ms=0)
    assert [batch.base for batch in taken(table, 9).producers[0].batches] == [0, 1, 2]


def test_a_producer_silent_for_a_day_is_forgotten_only_with_a_snapshot() -> None:
    table = ProducerTable()
    table.record(PID, 0, 0, 0, 0, 0, wall_ms=1_000, committed=0)
    table.record(8, 0, 0, 0, 1, 0, wall_ms=EXPIRY_MS, committed=0)
    work = table.begin_snapshot(2, wall_ms=1_000 + EXPIRY_MS)
    assert [entry.producer_id for entry in read_back(work).producers] == [8]
    assert table.judge(PID, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    table.forget(work)
    assert table.judge(PID, 0, 5, 5) is ErrorCode.NONE
    assert table.judge(8, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_how_long_a_producer_is_remembered_is_a_setting() -> None:
    table = ProducerTable(ProducerBounds(expiration_ms=60_000))
    table.record(PID, 0, 0, 0, 0, 0, wall_ms=0, committed=0)
    assert table.remembered(59_999) == [PID]
    assert table.remembered(60_000) == []
    assert taken(table, 1, wall_ms=60_000).producers == ()


def test_a_producer_heard_of_since_the_snapshot_is_not_forgotten() -> None:
    table = ProducerTable()
    table.record(PID, 0, 0, 0, 0, 0, wall_ms=0, committed=0)
    work = table.begin_snapshot(1, wall_ms=EXPIRY_MS)
    assert read_back(work).producers == ()
    table.record(PID, 0, 1, 1, 1, 0, wall_ms=EXPIRY_MS, committed=1)
    table.forget(work)
    assert table.judge(PID, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [batch.base for batch in taken(table, 2, EXPIRY_MS).producers[0].batches] == [0, 1]


def test_a_snapshot_that_failed_forgets_nobody() -> None:
    table = ProducerTable()
    table.record(PID, 0, 0, 0, 0, 0, wall_ms=0, committed=0)
    work = table.begin_snapshot(1, wall_ms=EXPIRY_MS)
    assert work.left_out == [PID]
    table.abandon(work)
    assert [entry.producer_id for entry in taken(table, 1).producers] == [PID]


def test_a_snapshot_is_made_a_step_at_a_time_while_the_table_goes_on() -> None:
    """And is of the moment at which it was begun: what producers sent since, and who was forgotten, changes nothing
    of what was committed below it."""
    table = ProducerTable()
    count = 3 * STEP_PRODUCERS
    for n in range(count):
        table.record(n, 0, 0, 0, n, 0, wall_ms=0, committed=n)
    table.committed(count)
    work = table.begin_snapshot(count, wall_ms=0)
    base = count
    for _ in work.steps():
        for _more in range(7):  # more than are kept, all of them committed at once
            table.record(count - 1, 0, base, base, base, 0, wall_ms=0, committed=base + 1)
            base += 1
    data = work.data()
    assert data is not None
    snapshot = decode_snapshot(data)
    assert {entry.producer_id: entry.batches[-1].base for entry in snapshot.producers} == {
        n: n for n in range(count)
    }
    table.forget(work)
    last = {e.producer_id: [b.base for b in e.batches] for e in taken(table, base).producers}[count - 1]
    assert last == list(range(base - BATCHES_MAX, base))
    table.record(count - 1, 0, base, base, base, 0, wall_ms=0, committed=base + 1)
    assert len(table._producers[count - 1].batches) == BATCHES_MAX, "what the snapshot kept has gone"


def test_only_what_changed_is_made_anew_for_a_snapshot() -> None:
    table = table_of(*(header(n, 0, pid=n) for n in range(5 * STEP_PRODUCERS)))
    first = table.begin_snapshot(5 * STEP_PRODUCERS, wall_ms=0)
    assert len(list(first.steps())) == 5
    table.forget(first)
    table.replay(unmarked([header(5 * STEP_PRODUCERS, 1, pid=0)]), wall_ms=0)
    second = table.begin_snapshot(5 * STEP_PRODUCERS + 1, wall_ms=0)
    assert list(second.steps()) == []
    assert len(decode_snapshot(second.data() or b"").producers) == 5 * STEP_PRODUCERS


def bounded(ids_max: int = 3) -> ProducerTable:
    return ProducerTable(ProducerBounds(ids_max=ids_max))


def test_past_its_bound_a_table_forgets_who_was_silent_longest() -> None:
    table = bounded()
    table.replay(unmarked([header(n, 0, pid=n) for n in range(3)]), wall_ms=0)
    assert {entry.producer_id for entry in taken(table, 3).producers} == {0, 1, 2}
    table.replay(unmarked([header(3, 1, pid=0), header(4, 0, pid=9)]), wall_ms=0)
    assert [pid in table for pid in (0, 1, 2, 9)] == [True, False, True, True]
    assert {entry.producer_id for entry in taken(table, 5).producers} == {0, 2, 9}


def test_a_producer_that_is_pushed_out_is_in_no_later_snapshot() -> None:
    table = bounded()
    table.replay(unmarked([header(n, 0, pid=n) for n in range(3)]), wall_ms=0)
    assert {entry.producer_id for entry in taken(table, 3).producers} == {0, 1, 2}
    table.replay(unmarked([header(3, 0, pid=9)]), wall_ms=0)
    assert {entry.producer_id for entry in taken(table, 4).producers} == {1, 2, 9}


def test_a_forgotten_producer_is_unknown_and_nothing_of_it_is_called_written() -> None:
    """As in Kafka when the state of a producer has expired: its batch is appended, and its offset is the real one."""
    table = bounded()
    table.replay(unmarked([header(n, 0, pid=n) for n in range(4)]), wall_ms=0)
    assert table.judge(0, 0, 0, 0) is ErrorCode.NONE
    assert table.judge(0, 0, 7, 7) is ErrorCode.NONE
    table.record(0, 0, 7, 7, 9, 0, wall_ms=0, committed=9)
    assert table.judge(0, 0, 6, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_with_a_batch_on_its_way_is_never_forgotten() -> None:
    """Its repeat would be appended beside it."""
    table = bounded()
    for n in range(3):
        assert table.make_room(n)
        table.record(n, 0, 0, 0, n, 0, wall_ms=0, committed=0)
    assert not table.make_room(3)
    assert table.make_room(0), "who is known needs no place"
    table.committed(1)
    assert table.make_room(3), "the oldest batch is committed"
    assert [pid in table for pid in range(3)] == [False, True, True]


def test_after_a_replay_only_what_was_replayed_counts_as_committed() -> None:
    """Else what is appended from then on could be forgotten on its way, or be called a duplicate of nothing."""
    table = ProducerTable(ProducerBounds(ids_max=1))
    table.replay(unmarked([header(0, 0)]), wall_ms=0)
    for n in range(1, 20):
        table.record(PID, 0, n, n, n, 0, wall_ms=0, committed=1)
    assert isinstance(table.judge(PID, 0, 1, 1), Repeat)
    assert not table.make_room(PID + 1), "the one that is known has batches on their way"


def test_a_producers_batches_on_their_way_are_bounded() -> None:
    table = ProducerTable()
    assert table.takes(PID, IN_FLIGHT_MAX)
    assert not table.takes(PID, IN_FLIGHT_MAX + 1)
    for n in range(IN_FLIGHT_MAX):
        assert table.takes(PID, 1)
        table.record(PID, 0, n, n, n, 0, wall_ms=0, committed=0)
    assert not table.takes(PID, 1)
    assert table.takes(PID + 1, 1), "another one has its own"
    table.committed(10)
    assert table.takes(PID, 10)
    assert not table.takes(PID, 11)


def test_batches_that_a_snapshot_still_reads_are_not_on_their_way() -> None:
    table = table_of(header(0, 0))
    work = table.begin_snapshot(1, wall_ms=0)
    for n in range(1, 2 * IN_FLIGHT_MAX):
        assert table.takes(PID, 1)
        table.record(PID, 0, n, n, n, 0, wall_ms=0, committed=n)
    table.forget(work)
    table.record(PID, 0, n + 1, n + 1, n + 1, 0, wall_ms=0, committed=n + 1)
    assert table.bytes == PRODUCER_BYTES + (BATCHES_MAX + 1) * BATCH_BYTES


def test_who_is_about_to_append_is_not_the_one_to_be_forgotten() -> None:
    table = ProducerTable()
    table.join(ProducerBudget(bytes_max=2 * (PRODUCER_BYTES + BATCH_BYTES)))
    table.replay(unmarked([header(n, 0, pid=n) for n in range(2)]), wall_ms=0)
    assert table.make_room(0)
    assert [pid in table for pid in (0, 1)] == [True, False]


def test_of_a_snapshot_with_too_many_the_newest_are_restored() -> None:
    whole = table_of(*(header(n, 0, pid=100 - n) for n in range(10)))
    table = ProducerTable.restore(taken(whole, 10), ProducerBounds(ids_max=3))
    assert {pid for pid in range(101) if pid in table} == {91, 92, 93}
    table.replay(unmarked([header(10, 0, pid=5)]), wall_ms=0)
    assert {pid for pid in range(101) if pid in table} == {91, 92, 5}


def test_a_table_counts_its_bytes() -> None:
    table = bounded(10)
    table.replay(unmarked([header(n, n // 3, pid=n % 3) for n in range(60)]), wall_ms=0)
    assert table.bytes == 3 * (PRODUCER_BYTES + BATCHES_MAX * BATCH_BYTES)
    assert ProducerTable.restore(taken(table, 60)).bytes == table.bytes
    table.evict(3)
    assert table.bytes == 0


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["append", "commit", "take", "fail"])), max_size=60
    ),
    ids_max=st.integers(1, 6),
)
def test_whatever_happened_a_snapshot_holds_what_the_table_knows(
    steps: list[tuple[int, str]], ids_max: int
) -> None:
    """Made of old and new parts, it equals the one that is made of nothing but the table."""
    table, end, committed, sequences = bounded(ids_max), 0, 0, dict.fromkeys(range(6), 0)
    for pid, step in steps:
        if step == "append" and table.make_room(pid):
            table.record(pid, 0, sequences[pid], sequences[pid], end, 0, wall_ms=0, committed=committed)
            end, sequences[pid] = end + 1, sequences[pid] + 1
        elif step == "commit":
            committed = end
            table.committed(committed)
        else:
            work = table.begin_snapshot(committed, wall_ms=0)
            entries = [table.entry(number, committed) for number in table.remembered(0)]
            expected = {entry.producer_id: entry for entry in entries if entry is not None}
            assert {entry.producer_id: entry for entry in read_back(work).producers} == expected
            (table.forget if step == "take" else table.abandon)(work)
        assert len(table) <= ids_max


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    start=st.sampled_from((0, SEQUENCE_MASK - 5)),
    cut=st.integers(0, 12),
)
def test_snapshot_and_replay_give_the_table_that_the_whole_log_gives(
    counts: list[int], start: int, cut: int
) -> None:
    headers, offset, seq = [], 0, start
    for count in counts:
        headers.append(header(offset, seq, count))
        offset, seq = offset + count, sequence_after(seq, count)
    covered = headers[cut].base_offset if cut < len(headers) else offset
    whole = table_of(*headers)
    again = ProducerTable.restore(taken(table_of(*headers[:cut]), covered))
    again.replay(unmarked(headers), wall_ms=0)
    assert taken(again, offset) == taken(whole, offset)
    assert len(taken(whole, offset).producers[0].batches) == min(BATCHES_MAX, len(counts))
    for candidate in headers[-BATCHES_MAX:]:
        last = sequence_after(candidate.base_sequence, candidate.last_offset_delta)
        known = again.judge(PID, 0, candidate.base_sequence, last)
        assert isinstance(known, Repeat)
        assert known.base == candidate.base_offset


# --- markers ---------------------------------------------------------------------------------------


def marked(
    table: ProducerTable, base: int, epoch: int, *, pid: int = PID, coordinator_epoch: int = 3
) -> None:
    table.record_marker(pid, epoch, coordinator_epoch, base, wall_ms=0, committed=COMMITTED)


def test_a_marker_of_the_same_epoch_changes_no_sequence() -> None:
    table = table_of(header(0, 0, 3))
    marked(table, 3, 0)
    assert table.judge(PID, 0, 3, 3) is ErrorCode.NONE
    assert table.judge(PID, 0, 0, 2) == Repeat(0, 0, 9)
    assert table.judge(PID, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_that_raises_the_epoch_fences_older_ones_and_begins_at_sequence_0() -> None:
    table = table_of(header(0, 0, 3))
    marked(table, 3, 1)
    assert table.judge(PID, 0, 3, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.judge(PID, 0, 0, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert table.judge(PID, 1, 3, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.judge(PID, 1, 0, 0) is ErrorCode.NONE
    table.replay(unmarked([header(4, 0, epoch=1)]), wall_ms=0)
    assert table.judge(PID, 1, 1, 1) is ErrorCode.NONE
    assert table.judge(PID, 1, 0, 0) == Repeat(4, 4, 9)


def test_a_producer_of_which_only_a_marker_is_left_is_in_the_snapshot_and_is_restored() -> None:
    table = table_of(header(0, 0, 3), header(3, 0, pid=8))
    marked(table, 4, 1)
    snapshot = taken(table, 5)
    entries = {entry.producer_id: entry for entry in snapshot.producers}
    assert (entries[PID].epoch, entries[PID].batches, entries[PID].coordinator_epoch) == (1, (), 3)
    assert entries[8].coordinator_epoch == -1
    again = ProducerTable.restore(snapshot)
    assert again.judge(PID, 0, 3, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert again.judge(PID, 1, 0, 0) is ErrorCode.NONE
    assert taken(again, 5) == snapshot


def test_a_snapshot_holds_no_marker_that_is_on_its_way() -> None:
    table = table_of(header(0, 0))
    for base, epoch, coordinator_epoch in ((1, 1, 3), (2, 2, 4)):
        table.record_marker(PID, epoch, coordinator_epoch, base, wall_ms=0, committed=1)
    before = ProducerTable.restore(taken(table, 1)).entry(PID, 1)
    assert before is not None
    assert (before.epoch, len(before.batches), before.coordinator_epoch) == (0, 1, -1)
    found = table.entry(PID, 2)
    assert found is not None
    assert (found.epoch, found.batches, found.coordinator_epoch) == (1, (), 3)


def test_a_replayed_marker_is_no_sequence() -> None:
    """Its header has the sequence -1."""
    table = table_of(header(0, 0, 3))
    control = msgspec.structs.replace(header(3, -1, epoch=1), attributes=CONTROL | TRANSACTIONAL)
    other = msgspec.structs.replace(control, base_offset=4, producer_epoch=9)
    table.replay([(control, Marker(True, 5)), (other, None)], wall_ms=0)
    entry = table.entry(PID, 9)
    assert entry is not None
    assert (entry.epoch, entry.batches, entry.coordinator_epoch) == (1, (), 5)


def test_a_producer_with_an_open_transaction_is_neither_forgotten_nor_expired() -> None:
    table = ProducerTable(ProducerBounds(ids_max=3))
    table.hold({0})
    table.replay(unmarked([header(n, 0, pid=n) for n in range(3)]), wall_ms=0)
    table.replay(unmarked([header(3, 0, pid=9)]), wall_ms=0)
    assert 0 in table
    assert 1 not in table
    work = table.begin_snapshot(4, wall_ms=EXPIRY_MS)
    assert work.left_out == [2, 9]
    table.forget(work)
    assert 0 in table
    table.hold(())
    assert table.begin_snapshot(4, wall_ms=EXPIRY_MS).left_out == [0]


def test_a_snapshot_of_too_many_keeps_those_with_open_transactions() -> None:
    whole = table_of(*(header(n, 0, pid=n) for n in range(6)))
    begun = (OpenTransaction(producer_id=1, epoch=0, number=1, first=1),)
    snapshot = replace(taken(whole, 6), open=begun, transactional=True)
    table = ProducerTable.restore(snapshot, ProducerBounds(ids_max=2))
    assert [n for n in range(6) if n in table] == [1, 4, 5]


def test_the_bytes_of_a_table_count_its_markers() -> None:
    table = table_of(header(0, 0))
    for base in range(1, 9):
        marked(table, base, 0)
    assert table.bytes == PRODUCER_BYTES + BATCH_BYTES + MARKER_BYTES
    table.replay(unmarked([header(n, 0, pid=n) for n in range(20, 25)]), wall_ms=0)
    assert table.evict(99) == 6
    assert table.bytes == 0
