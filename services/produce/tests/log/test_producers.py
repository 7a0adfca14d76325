"""Idempotence: what a producer's sequence numbers mean to the owner of a partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.log.producers import SEQUENCE_MASK, KnownBatch, ProducerTable, sequence_after
from kafscale.storage.snapshots import BATCHES_MAX, EXPIRY_MS, decode_snapshot, encode_snapshot
from kafscale.wire.batches import BatchHeader
from kafscale.wire.errors import ErrorCode

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


def table_of(*headers: BatchHeader) -> ProducerTable:
    table = ProducerTable()
    table.replay(headers, wall_ms=0)
    return table


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    assert ProducerTable().judge(PID, 3, 4_711, 4_711) is ErrorCode.NONE


def test_the_next_sequence_is_accepted() -> None:
    assert table_of(header(0, 0, 3)).judge(PID, 0, 3, 5) is ErrorCode.NONE


def test_a_gap_is_out_of_order() -> None:
    assert table_of(header(0, 0, 3)).judge(PID, 0, 4, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeat_gets_the_original_offset() -> None:
    known = table_of(header(0, 0, 3), header(10, 3, 2)).judge(PID, 0, 3, 4)
    assert isinstance(known, KnownBatch)
    assert known.base == 10


def test_the_repeat_of_neighbouring_batches_in_one_request_gets_the_first_offset() -> None:
    known = table_of(header(0, 0, 3), header(3, 3, 2), header(5, 5)).judge(PID, 0, 0, 4)
    assert isinstance(known, KnownBatch)
    assert known.base == 0


def test_a_batch_that_overlaps_a_known_one_is_out_of_order_and_not_dropped() -> None:
    table = table_of(header(0, 0, 3))
    assert table.judge(PID, 0, 2, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.judge(PID, 0, 1, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeat_older_than_the_last_five_is_called_a_duplicate() -> None:
    table = table_of(*(header(n, n) for n in range(7)))
    assert isinstance(table.judge(PID, 0, 2, 2), KnownBatch)
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
    assert isinstance(inside.judge(PID, 0, SEQUENCE_MASK, 1), KnownBatch)


def test_all_batches_in_flight_and_five_committed_ones_are_remembered() -> None:
    table = ProducerTable()
    for n in range(20):
        table.record(PID, 0, n, n, n, 0, wall_ms=0, committed=10)
    assert isinstance(table.judge(PID, 0, 5, 5), KnownBatch)
    assert table.judge(PID, 0, 4, 4) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    snapshot = table.snapshot(10)
    assert [batch.base for batch in snapshot.producers[0].batches] == [5, 6, 7, 8, 9]


def test_a_snapshot_leaves_out_what_is_not_committed() -> None:
    table = table_of(header(0, 0))
    table.record(PID, 1, 0, 0, 1, 0, wall_ms=0, committed=1)
    table.record(8, 0, 0, 0, 2, 0, wall_ms=0, committed=1)
    snapshot = table.snapshot(1)
    assert [(entry.producer_id, entry.epoch) for entry in snapshot.producers] == [(PID, 0)]


def test_replay_passes_over_what_the_snapshot_covers() -> None:
    table = ProducerTable.restore(table_of(header(0, 0), header(1, 1)).snapshot(2))
    table.replay([header(1, 1), header(2, 2), header(3, -1, pid=-1)], wall_ms=0)
    assert [batch.base for batch in table.snapshot(9).producers[0].batches] == [0, 1, 2]


def test_a_producer_silent_for_a_day_is_forgotten_only_with_a_snapshot() -> None:
    table = ProducerTable()
    table.record(PID, 0, 0, 0, 0, 0, wall_ms=1_000, committed=0)
    table.record(8, 0, 0, 0, 1, 0, wall_ms=EXPIRY_MS, committed=0)
    kept = table.expired(table.snapshot(2), wall_ms=1_000 + EXPIRY_MS)
    assert table.judge(PID, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    table.forget(kept)
    assert table.judge(PID, 0, 5, 5) is ErrorCode.NONE
    assert table.judge(8, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_heard_of_since_the_snapshot_is_not_forgotten() -> None:
    table = ProducerTable()
    table.record(PID, 0, 0, 0, 0, 0, wall_ms=0, committed=0)
    kept = table.expired(table.snapshot(1), wall_ms=EXPIRY_MS)
    table.record(PID, 0, 1, 1, 1, 0, wall_ms=EXPIRY_MS, committed=1)
    table.forget(kept)
    assert table.judge(PID, 0, 5, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


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
    stored = decode_snapshot(encode_snapshot(table_of(*headers[:cut]).snapshot(covered)))
    again = ProducerTable.restore(stored)
    again.replay(headers, wall_ms=0)
    assert again.snapshot(offset) == whole.snapshot(offset)
    assert len(whole.snapshot(offset).producers[0].batches) == min(BATCHES_MAX, len(counts))
    for candidate in headers[-BATCHES_MAX:]:
        last = sequence_after(candidate.base_sequence, candidate.last_offset_delta)
        known = again.judge(PID, 0, candidate.base_sequence, last)
        assert isinstance(known, KnownBatch)
        assert known.base == candidate.base_offset
