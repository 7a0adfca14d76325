"""Inside the batches of a compacted topic: the one place where an append opens records.

Compaction keeps the newest record of each key, so a record without a key is refused, and each of them is
named to the client (KIP-467). Reading costs microseconds for each record, and a small batch may hold a great
many; so whoever has an event loop lets a thread read what is not `is_small`, and gives the writer what was
found. Reading has no state: what it finds is true of the bytes, whenever they are appended.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafscale.produce.log.batches import Batches, Rejection
from kafscale.produce.log.model import RecordFault
from kafscale.wire.batches import CODEC_MASK, split_batches, validate_batch
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.records import records_in

SMALL_BYTES_MAX: Final = 8 << 10
FAULTS_MAX: Final = 1_000
"""Of one request; the message says how many there are."""
KEYLESS: Final = "A compacted topic takes no record without a key."


class Contents(NamedTuple):
    """What reading a record set's records found."""

    rejection: Rejection | None


def is_small(record_set: memoryview) -> bool:
    """Whether these records are read within a few milliseconds: none is compressed, and they are few."""
    if len(record_set) > SMALL_BYTES_MAX:
        return False
    try:
        return not any(header.attributes & CODEC_MASK for header, _ in split_batches(record_set))
    except WireError:
        return True  # refused before a record is read


def read(record_set: memoryview) -> Contents:
    """What is wrong inside. Batches that are wrong from the outside are left to `check_record_set`."""
    try:
        batches = split_batches(record_set)
        if any(validate_batch(header, batch) for header, batch in batches):
            return Contents(None)
        return _read(batches)
    except WireError as broken:
        return Contents(Rejection(broken.code, str(broken)))


def _read(batches: Batches) -> Contents:
    index = keyless = 0
    faults = []
    for header, batch in batches:
        wanted = header.base_offset
        for record in records_in(batch, header):
            if record.offset != wanted:
                reason = f"Record {index} has offset {record.offset} in its batch, and not {wanted}."
                return Contents(Rejection(ErrorCode.INVALID_RECORD, reason))
            if record.key is None:
                keyless += 1
                if keyless <= FAULTS_MAX:
                    faults.append(RecordFault(index, KEYLESS))
            wanted += 1
            index += 1
    if not keyless:
        return Contents(None)
    reason = f"{keyless} of {index} records were refused: {KEYLESS}"
    return Contents(Rejection(ErrorCode.INVALID_RECORD, reason, tuple(faults)))
