"""What batches do to the open transactions of a log, and what is found in stored batches."""

from __future__ import annotations

from kafscale.log.heads import Aborted, OpenTransaction, Seg
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.log.transactions import End, Transactions, events_in, stored_batches
from kafscale.wire.markers import Marker, end_marker
from kafscale.wire.records import Record, build_batch, patch_batch, read_batch_header


def seg(base: int, end: int) -> Seg:
    return Seg(
        base=base, last_delta=end - base - 1, size=100, etag="e", crc32c=1, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=end - base, batches=1, created_ms=1,
    )  # fmt: skip


def begun(producer_id: int, first: int, epoch: int = 0) -> OpenTransaction:
    return OpenTransaction(producer_id=producer_id, epoch=epoch, number=-1, first=first)


def test_a_transaction_begins_once_and_ends_at_the_producers_next_marker() -> None:
    log = Transactions()
    assert log.stable_end(9) == 9
    for event in (begun(7, 3), begun(8, 5), begun(7, 6)):
        assert log.take(event) is None
    assert log.open == (begun(7, 3), begun(8, 5))
    assert (7 in log, 9 in log, log.of(8), log.stable_end(9)) == (True, False, begun(8, 5), 3)
    assert log.take(End(producer_id=7, commit=True, offset=9)) is None
    assert log.stable_end(10) == 5
    ended = log.take(End(producer_id=8, commit=False, offset=10))
    assert ended == Aborted(producer_id=8, first=5, last=10)
    assert log.take(End(producer_id=8, commit=False, offset=11)) is None
    assert (log.open, log.stable_end(12)) == ((), 12)


def test_an_entry_without_anything_to_say_stays_the_same_object() -> None:
    entry = seg(0, 5)
    assert Transactions().entry(entry, ()) is entry


def test_an_entry_says_what_it_aborted_after_what_it_repeats() -> None:
    log = Transactions([begun(8, 1)])
    before = (Aborted(producer_id=5, first=2, last=4),)
    events = [begun(7, 6), End(producer_id=7, commit=False, offset=8)]
    made = log.entry(seg(2, 10), events, before)
    assert made.aborted == (*before, Aborted(producer_id=7, first=6, last=8))
    assert made.unstable == 9


def test_the_events_of_stored_batches() -> None:
    def batch(producer_id: int, *, transactional: bool) -> bytes:
        return build_batch(
            [Record(value=b"v")] * 2,
            producer_id=producer_id,
            producer_epoch=4,
            base_sequence=0,
            transactional=transactional,
        )

    plain = [
        batch(7, transactional=False),
        batch(8, transactional=True),
        end_marker(Marker(False, 6), producer_id=8, producer_epoch=5, timestamp_ms=1),
        build_batch([Record(key=bytes((0, 0, 0, 3)), value=b"")], control=True),
    ]
    parts, infos, offset = [], [], 10
    for each in plain:
        placed = bytearray(each)
        patch_batch(placed, offset, 1)
        header = read_batch_header(placed)
        infos.append(BatchInfo(offset, header.last_offset, len(placed), header.records_count))
        parts.append(placed)
        offset = header.last_offset + 1
    data = b"".join(build_segment(10, infos, parts, created_ms=1).body)
    assert [marker for _, marker in stored_batches(data)] == [None, None, Marker(False, 6), None]
    assert list(events_in(stored_batches(data))) == [
        begun(8, 12, epoch=4),
        End(producer_id=8, commit=False, offset=14),
    ]
