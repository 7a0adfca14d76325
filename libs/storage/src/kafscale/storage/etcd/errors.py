"""The errors of a request to etcd, in two kinds that callers must treat differently.

Unknown: the request may have been applied, or may be applied later. Resolve it by sending the identical request again,
never by assuming failure. Rejected: etcd refused the request before proposing it, so nothing was written.
`mvcc: database space exceeded` is unknown, because etcd applies the transaction before it reports this.
"""

from __future__ import annotations

from enum import Enum

import grpc

FULL_REMEDY = "; `kafscale etcd-repair` makes room and clears the alarm"


_STALE_TOKEN = (
    "invalid auth token",
    "revision of auth store is old",
    "user name is empty",  # authentication was enabled after the request had left without a token
)


class UnknownKind(Enum):
    TIMEOUT = "timeout"  # the deadline passed
    UNAVAILABLE = "unavailable"  # the connection broke, or was never established
    LEADER = "leader"  # no leader, or it changed
    NOSPACE = "nospace"  # over the database quota
    OVERLOADED = "overloaded"  # etcd sheds load
    LOGIN = "login"  # the user's password is being changed
    OTHER = "other"


class EtcdError(Exception):
    """A request to etcd failed, or its outcome is unknown."""


class EtcdUnknown(EtcdError):
    """The outcome is unknown: the request may have been applied, or may be applied later."""

    def __init__(self, kind: UnknownKind, detail: str, endpoint: str = "") -> None:
        remedy = FULL_REMEDY if kind is UnknownKind.NOSPACE else ""
        super().__init__(f"outcome unknown ({kind.value}) at {endpoint or 'etcd'}: {detail}{remedy}")
        self.kind = kind
        self.detail = detail
        self.endpoint = endpoint


class EtcdRejected(EtcdError):
    """etcd refused the request, and wrote nothing."""

    def __init__(self, code: grpc.StatusCode, detail: str, endpoint: str = "") -> None:
        super().__init__(f"refused ({code.name}) by {endpoint or 'etcd'}: {detail}")
        self.code = code
        self.detail = detail
        self.endpoint = endpoint

    @property
    def is_stale_token(self) -> bool:
        """The token expired, or users or roles changed. A new token helps."""
        return any(text in self.detail for text in _STALE_TOKEN)

    @property
    def is_wrong_password(self) -> bool:
        return "authentication failed" in self.detail

    @property
    def is_without_users(self) -> bool:
        """Authentication is disabled in etcd."""
        return "authentication is not enabled" in self.detail

    @property
    def is_lease_gone(self) -> bool:
        return "requested lease not found" in self.detail


class WatchCompacted(EtcdError):
    """etcd has compacted the history that a watch needs. Read the whole range again."""

    def __init__(self, compact_revision: int) -> None:
        super().__init__(f"history before revision {compact_revision} is gone")
        self.compact_revision = compact_revision


_DEFINITE = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# The request was refused because of its size. The message is different if the client refuses an answer: it says CLIENT.
_TOO_LARGE = ("SERVER: Received message larger", "grpc: received message larger", "Sent message larger")


def classify(code: grpc.StatusCode, detail: str, endpoint: str) -> EtcdUnknown | EtcdRejected:
    """The error for a gRPC status."""
    if code in _DEFINITE:
        return EtcdRejected(code, detail, endpoint)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and any(text in detail for text in _TOO_LARGE):
        return EtcdRejected(code, detail, endpoint)
    return EtcdUnknown(_kind(code, detail), detail, endpoint)


def _kind(code: grpc.StatusCode, detail: str) -> UnknownKind:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or "request timed out" in detail:
        return UnknownKind.TIMEOUT
    if "database space exceeded" in detail:
        return UnknownKind.NOSPACE
    if "leader" in detail:
        return UnknownKind.LEADER
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnknownKind.UNAVAILABLE
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return UnknownKind.OVERLOADED
    return UnknownKind.OTHER
