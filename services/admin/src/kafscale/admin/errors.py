"""External failures as Kafka errors: one table from exception to error code."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Final, TypeVar

from kafscale.access.rules import Need
from kafscale.admin.plan import Refused
from kafscale.storage.etcd.client import EtcdError, EtcdUnknown
from kafscale.storage.etcd.swap import TooContended
from kafscale.storage.history.witness import WentBack
from kafscale.storage.objects import StoreError
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode, error_name

T = TypeVar("T")

NO_AUTHORIZER: Final = Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""In every field for an error, as Kafka's controller answers without an authorizer."""

UNREAD: Final = Refused(
    ErrorCode.REQUEST_TIMED_OUT, "etcd did not answer, so the request was not answered from old data."
)


def unauthorized(need: Need) -> Refused:
    """The error of a denial, with Kafka's message."""
    return Refused(need.code, need.code.message)


def refusal(
    trouble: EtcdError | TooContended | UnreadableValue | WentBack | StoreError | TimeoutError,
) -> Refused:
    """An unknown outcome is a timeout, which clients may retry. In the other cases nothing was changed."""
    if isinstance(trouble, UnreadableValue):
        return Refused(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The change was not made, because a stored record is damaged: {trouble}",
        )
    if isinstance(trouble, WentBack):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The change was not made: {trouble}")
    if isinstance(trouble, StoreError | TimeoutError):
        sentence = f"The change was not made, because etcd's history could not be verified: {trouble!r}"
        return Refused(ErrorCode.REQUEST_TIMED_OUT, sentence)
    if isinstance(trouble, EtcdUnknown):
        return Refused(
            ErrorCode.REQUEST_TIMED_OUT, f"etcd did not answer. The change may have been made: {trouble}"
        )
    if isinstance(trouble, TooContended):
        return Refused(ErrorCode.REQUEST_TIMED_OUT, f"The change was not made: {trouble}")
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"etcd refused the change: {trouble}")


def outcome_of(refused: Refused | None) -> str:
    """Kafka's name of the error, for the audit log; `NONE` for a change that was made."""
    return error_name(ErrorCode.NONE if refused is None else refused.error)


def incomplete(what: str, damaged: Collection[bytes]) -> Refused | None:
    """For a list that would lack the records of these keys, because they cannot be read."""
    if not damaged:
        return None
    sentence = f"{len(damaged)} stored {what} cannot be read, the first is {next(iter(damaged))!r}."
    return Refused(ErrorCode.KAFKA_STORAGE_ERROR, sentence)


async def guarded(work: Awaitable[T]) -> T | Refused:
    """The result of a change, or the refusal for its failure."""
    try:
        return await work
    except (EtcdError, TooContended, UnreadableValue, WentBack, StoreError, TimeoutError) as trouble:
        return refusal(trouble)
