"""The errors of transactional ids in the words of old versions, which clients know of their own time (KIP-890)."""

from __future__ import annotations

from kafscale.wire.errors import ErrorCode

ALWAYS = 0
"""Every version of the API knows the error, or never gets it."""


def in_words_of(
    version: int, error: ErrorCode, *, fenced_from: int, abortable_from: int = ALWAYS
) -> ErrorCode:
    """`fenced_from` and `abortable_from`: the first versions of the API that know PRODUCER_FENCED and
    TRANSACTION_ABORTABLE."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < abortable_from:
        return ErrorCode.INVALID_TXN_STATE
    return error
