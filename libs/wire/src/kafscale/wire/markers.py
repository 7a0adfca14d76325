"""Markers: the control batches that end a transaction in a partition (KIP-98).

A marker is a batch of one record. The record's key says the outcome: version 0 and type 0 (abort) or 1 (commit), each
16 bits. Its value is version 0 and the epoch of the transaction's coordinator, in 32 bits. The batch has the producer
id of the transaction and no sequence. Its producer epoch is that of the transaction or, if the end also raised the
epoch (KIP-890), the next one. Other types of control batches exist in logs of Kafka's controllers only.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from kafscale.wire.batches import BatchHeader
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.records import Record, build_batch, records_in

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that decided it."""

    commit: bool
    coordinator_epoch: int


def end_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    """The batch, as a broker writes it: to be placed in its log, which gives it one offset."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(timestamp=timestamp_ms, key=key, value=value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def marker_of(batch: Buffer, header: BatchHeader) -> Marker | None:
    """What a stored control batch says. None: it ends no transaction, or compaction has removed its record. Raises
    WireError for a record that is no control record."""
    record = next(records_in(batch, header), None)
    if record is None:
        return None
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except error as broken:
        raise WireError("control record", f"cut short ({broken})", offset=0) from broken
    return Marker(kind == _COMMIT, coordinator_epoch)
