"""What a Produce request says of its transaction, and the codes of transactions that its version knows. Pure.

The version of each request says which protocol its client speaks: from Produce 12 on (TV2, KIP-890) a batch adds its
partition to the transaction, before that the client has added it with AddPartitionsToTxn.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafscale.wire.batches import HEADER_SIZE, MAGIC, TRANSACTIONAL
from kafscale.wire.errors import ErrorCode

VERSION_ABORTABLE: Final = 11
VERSION_ADDS: Final = 12
_MAGIC_AT = 16
_ATTRIBUTES_AT = 21
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qh")  # id, epoch

NOT_AVAILABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a coordinator of ids answers for the moment. A producer that writes to a partition does not know these codes."""


_KNOWN = frozenset(ErrorCode)


class Transaction(NamedTuple):
    """Whose transaction the batches of a request are of. `adds`: they add their partitions to it."""

    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool


def transaction_of(
    transactional_id: str | None, version: int, record_sets: Iterable[memoryview | None]
) -> Transaction | ErrorCode | None:
    """None: no batch is of a transaction. Errors, for the whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED if it
    names no id, as in Kafka; INVALID_PRODUCER_ID_MAPPING if its batches are of two producers or epochs.

    Only the first batch of a record set is looked at: `log.intake` refuses others that are not alike."""
    producers = {found for records in record_sets if (found := _producer_of(records)) is not None}
    if not producers:
        return None
    if transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(producers) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ((producer_id, epoch),) = producers
    return Transaction(transactional_id, producer_id, epoch, version >= VERSION_ADDS)


def _producer_of(records: memoryview | None) -> tuple[int, int] | None:
    """Of a batch of a transaction."""
    if records is None or len(records) < HEADER_SIZE or records[_MAGIC_AT] != MAGIC:
        return None
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)
    if not attributes & TRANSACTIONAL:
        return None
    producer_id, epoch = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return producer_id, epoch


def refusal(code: int) -> ErrorCode:
    """How a batch is refused whose join got this code. A code that only a newer coordinator knows is one for the
    moment: its client sends the batch again."""
    if code not in _KNOWN or code in NOT_AVAILABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    error = ErrorCode(code)
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def wire_code(error: ErrorCode, version: int) -> ErrorCode:
    """As clients of this version know it (KIP-890)."""
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < VERSION_ADDS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < VERSION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error
