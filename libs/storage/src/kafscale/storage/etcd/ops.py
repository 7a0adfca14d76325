"""etcd's requests and answers as values, and their protobuf. Pure.

Encoding is deterministic: the same `Txn` gives the same bytes, so sending it again resolves an unknown outcome. etcd
evaluates nested transactions against the state before the outermost one, so their compares are independent. Every write
of a request has the top-level revision (`TxnResult.revision`), because etcd's nested headers are unreliable (etcd
#14490). A Range in a transaction has no separate revision, on purpose (etcd #18667).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from kafscale.etcd.v3 import rpc_pb2 as pb

Target: TypeAlias = Literal["mod", "create", "version", "value"]
Operator: TypeAlias = Literal["=", "!=", "<", ">"]


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Absent keys have mod, create and version 0."""

    key: bytes
    target: Target
    op: Operator
    value: int | bytes


@dataclass(frozen=True, slots=True)
class Put:
    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    key: bytes
    range_end: bytes | None = None
    limit: int = 0
    keys_only: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    key: bytes
    range_end: bytes | None = None


@dataclass(frozen=True, slots=True)
class Txn:
    """All compares hold: `success`, else `failure`. No key may be written twice in one request."""

    compare: tuple[Compare, ...] = ()
    success: tuple[Op, ...] = ()
    failure: tuple[Op, ...] = ()


Op: TypeAlias = "Put | Range | Delete | Txn"


@dataclass(frozen=True, slots=True)
class RangeResult:
    kvs: tuple[KeyValue, ...]
    revision: int
    more: bool = False
    count: int = 0


@dataclass(frozen=True, slots=True)
class PutResult:
    revision: int


@dataclass(frozen=True, slots=True)
class DeleteResult:
    deleted: int
    revision: int


@dataclass(frozen=True, slots=True)
class TxnResult:
    """`revision` is the one of the whole request, in nested results as well."""

    succeeded: bool
    revision: int
    responses: tuple[Result, ...]


Result: TypeAlias = "RangeResult | PutResult | DeleteResult | TxnResult"


class EventKind(Enum):
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Of a DELETE, `kv` has the key and the revision of the deletion, and no value."""

    kind: EventKind
    kv: KeyValue


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Events in order of revision; every event of the watch up to `revision` has been given."""

    events: tuple[WatchEvent, ...]
    revision: int


_RESULTS = {
    "=": pb.Compare.EQUAL,
    "!=": pb.Compare.NOT_EQUAL,
    "<": pb.Compare.LESS,
    ">": pb.Compare.GREATER,
}


def encode_txn(txn: Txn) -> pb.TxnRequest:
    request = pb.TxnRequest()
    _fill_txn(request, txn)
    return request


def _fill_txn(request: pb.TxnRequest, txn: Txn) -> None:
    # Filled in place: building the parts apart and passing them in copies every value once more.
    for compare in txn.compare:
        _fill_compare(request.compare.add(), compare)
    for op in txn.success:
        _fill_op(request.success.add(), op)
    for op in txn.failure:
        _fill_op(request.failure.add(), op)


def _fill_compare(request: pb.Compare, compare: Compare) -> None:
    request.result = _RESULTS[compare.op]
    request.key = compare.key
    value = compare.value
    if isinstance(value, bytes):
        assert compare.target == "value", compare
        request.target, request.value = pb.Compare.VALUE, value
    elif compare.target == "mod":
        request.target, request.mod_revision = pb.Compare.MOD, value
    elif compare.target == "version":
        request.target, request.version = pb.Compare.VERSION, value
    else:
        assert compare.target == "create", compare
        request.target, request.create_revision = pb.Compare.CREATE, value


def _fill_op(request: pb.RequestOp, op: Op) -> None:
    match op:
        case Put():
            put = request.request_put
            put.key, put.value = op.key, op.value
            if op.lease:
                put.lease = op.lease
        case Txn():
            # An empty nested transaction is a request too; reading the field does not set it.
            request.request_txn.SetInParent()
            _fill_txn(request.request_txn, op)
        case Range():
            span = request.request_range
            span.key, span.limit, span.keys_only = op.key, op.limit, op.keys_only
            if op.range_end is not None:
                span.range_end = op.range_end
        case Delete():
            request.request_delete_range.key = op.key
            if op.range_end is not None:
                request.request_delete_range.range_end = op.range_end


def decode_kv(kv: pb.KeyValue) -> KeyValue:
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def decode_range(response: pb.RangeResponse, revision: int) -> RangeResult:
    return RangeResult(tuple([decode_kv(kv) for kv in response.kvs]), revision, response.more, response.count)


def decode_txn(response: pb.TxnResponse, revision: int) -> TxnResult:
    """`revision` of the outermost header, which counts for everything inside."""
    responses = tuple([_decode_op(op, revision) for op in response.responses])
    return TxnResult(response.succeeded, revision, responses)


def _decode_op(op: pb.ResponseOp, revision: int) -> Result:
    match op.WhichOneof("response"):
        case "response_txn":
            return decode_txn(op.response_txn, revision)
        case "response_put":
            return PutResult(revision)
        case "response_range":
            return decode_range(op.response_range, revision)
        case "response_delete_range":
            return DeleteResult(op.response_delete_range.deleted, revision)
        case kind:
            raise AssertionError(f"etcd answered with {kind!r}")


def decode_event(event: pb.Event) -> WatchEvent:
    return WatchEvent(
        EventKind.DELETE if event.type == pb.Event.DELETE else EventKind.PUT,
        decode_kv(event.kv),
    )


def range_at(result: TxnResult, position: int) -> RangeResult:
    """What a branch of a transaction read at this place."""
    response = result.responses[position]
    assert isinstance(response, RangeResult), response
    return response
