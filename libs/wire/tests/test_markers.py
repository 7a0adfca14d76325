"""Markers: the bytes that Apache Kafka 4.3.1 writes, and what is read from them.

The bytes are those of `MemoryRecords.withEndTransactionMarker`; e2e/scenarios/test_markers.py compares others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.errors import WireError
from kafscale.wire.markers import Marker, end_marker, marker_of
from kafscale.wire.records import Record, build_batch, read_batch_header

COMMIT = (
    "000000000000000000000042ffffffff02edd683a70030000000000000018bcfe568000000018bcfe568000000000000000007"
    "0000ffffffff000000012000000008000000010c00000000000000"
)
ABORT = (
    "000000000000000000000042ffffffff02921f97840030000000000000018bcfe568010000018bcfe568014000000000000000"
    "7fffffffffff000000012000000008000000000c00000000000500"
)


def test_markers_have_the_bytes_of_kafka() -> None:
    commit = end_marker(Marker(True, 0), producer_id=7, producer_epoch=0, timestamp_ms=1_700_000_000_000)
    abort = end_marker(
        Marker(False, 5), producer_id=1 << 62, producer_epoch=32_767, timestamp_ms=1_700_000_000_001
    )
    assert (commit.hex(), abort.hex()) == (COMMIT, ABORT)


@given(st.booleans(), st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1), st.integers(0, 32_767))
def test_a_marker_reads_back_and_has_no_sequence(
    commit: bool, coordinator_epoch: int, producer_id: int, epoch: int
) -> None:
    marker = Marker(commit, coordinator_epoch)
    batch = end_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=9)
    header = read_batch_header(batch)
    assert marker_of(batch, header) == marker
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, -1)
    assert header.is_control
    assert header.is_transactional
    assert (len(batch), header.records_count) == (78, 1)


def test_other_control_records_end_no_transaction() -> None:
    """Kafka's controllers write types from 2 on, and compaction leaves batches without records."""
    leader_change = build_batch([Record(key=bytes((0, 0, 0, 2)), value=b"leader")], control=True)
    assert marker_of(leader_change, read_batch_header(leader_change)) is None
    emptied = build_batch([], producer_id=7, control=True, transactional=True)
    assert marker_of(emptied, read_batch_header(emptied)) is None


@pytest.mark.parametrize(("key", "value"), [(None, None), (b"\0\0\0", b""), (bytes(4), b"\0\0\0\0\0")])
def test_a_control_record_that_is_cut_short_is_refused(key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([Record(key=key, value=value)], control=True, transactional=True)
    with pytest.raises(WireError, match="control record: cut short"):
        marker_of(batch, read_batch_header(batch))
