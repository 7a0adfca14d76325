"""What etcd refuses before it proposes a request, with its codes and its words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.testkit.etcd_model.history import FROM_KEY, Span

OPERATIONS_MAX: Final = 128
REQUEST_BYTES_MAX: Final = 1_572_864
"""etcd's default `--max-request-bytes`."""

Code = grpc.StatusCode


class Refused(Exception):
    """A gRPC status of etcd. Nothing was written, except for NO_SPACE."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


def no_key() -> Refused:
    return Refused(Code.INVALID_ARGUMENT, "etcdserver: key is not provided")


def duplicate_key() -> Refused:
    return Refused(Code.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")


def too_many_operations() -> Refused:
    return Refused(Code.INVALID_ARGUMENT, "etcdserver: too many operations in txn request")


def too_large() -> Refused:
    return Refused(Code.INVALID_ARGUMENT, "etcdserver: request is too large")


def compacted() -> Refused:
    return Refused(Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")


def future() -> Refused:
    return Refused(Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")


def no_lease() -> Refused:
    return Refused(Code.NOT_FOUND, "etcdserver: requested lease not found")


def lease_exists() -> Refused:
    return Refused(Code.FAILED_PRECONDITION, "etcdserver: lease already exists")


def no_space() -> Refused:
    return Refused(Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")


def no_users() -> Refused:
    return Refused(Code.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")


def check(request: Message) -> None:
    """Raises Refused."""
    if isinstance(request, pb.RangeRequest | pb.PutRequest | pb.DeleteRangeRequest):
        if not request.key:
            raise no_key()
    elif isinstance(request, pb.TxnRequest):
        _check_txn(request, OPERATIONS_MAX)
        _written(request.success)
        _written(request.failure)
    if request.ByteSize() > REQUEST_BYTES_MAX:
        raise too_large()


def writes(request: Message) -> bool:
    """Whether a full etcd refuses it. etcd 3.4 does not look into nested transactions for that."""
    if isinstance(request, pb.TxnRequest):
        return any(op.WhichOneof("request") == "request_put" for op in (*request.success, *request.failure))
    return isinstance(request, pb.PutRequest | pb.LeaseGrantRequest)


def _check_txn(txn: pb.TxnRequest, operations_max: int) -> None:
    longest = max(len(txn.compare), len(txn.success), len(txn.failure))
    if longest > operations_max:
        raise too_many_operations()
    if any(not compare.key for compare in txn.compare):
        raise no_key()
    for op in (*txn.success, *txn.failure):
        match op.WhichOneof("request"):
            case "request_range":
                check(op.request_range)
            case "request_put":
                check(op.request_put)
            case "request_delete_range":
                check(op.request_delete_range)
            case "request_txn":
                _check_txn(op.request_txn, operations_max - longest)
            case kind:
                raise AssertionError(f"an operation without a request: {kind}")


def _written(ops: Iterable[pb.RequestOp]) -> tuple[set[bytes], list[Span]]:
    """The keys that these operations may put, and the spans that they may delete. Raises Refused if a key is written
    twice. Of a nested transaction only one branch is executed, so both may put a key."""
    ops = list(ops)
    deleted = [
        Span(op.request_delete_range.key, op.request_delete_range.range_end)
        for op in ops
        if op.WhichOneof("request") == "request_delete_range"
    ]
    put: set[bytes] = set()
    for op in ops:
        if op.WhichOneof("request") != "request_txn":
            continue
        then, then_deleted = _written(op.request_txn.success)
        otherwise, otherwise_deleted = _written(op.request_txn.failure)
        if then & put or (otherwise - then) & put or _hit(then | otherwise, deleted):
            raise duplicate_key()
        put |= then | otherwise
        deleted += then_deleted + otherwise_deleted
    for op in ops:
        if op.WhichOneof("request") == "request_put":
            key = op.request_put.key
            if key in put or _hit({key}, deleted):
                raise duplicate_key()
            put.add(key)
    return put, deleted


def _hit(keys: set[bytes], spans: list[Span]) -> bool:
    """etcd compares the end of a span as a text here, so no key is in a span that ends with FROM_KEY."""
    return any(key in span for span in spans if span.end != FROM_KEY for key in keys)
