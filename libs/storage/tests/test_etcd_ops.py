"""What goes to etcd and what comes back, without etcd."""

from __future__ import annotations

import grpc
import pytest
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.client import (
    BadEndpoint,
    Compare,
    Delete,
    EtcdRejected,
    EtcdUnknown,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    UnknownKind,
)
from kafscale.storage.etcd.errors import classify
from kafscale.storage.etcd.ops import Operator, Target, decode_txn, encode_txn
from kafscale.storage.etcd.transport import Endpoint

Code = grpc.StatusCode


def test_the_same_txn_gives_the_same_bytes() -> None:
    def build() -> Txn:
        inner = Txn((Compare(b"h", "mod", "=", 7),), (Put(b"h", b"v" * 99),), (Range(b"h"),))
        return Txn(success=(inner, Put(b"x", b"y", lease=3), Delete(b"a", b"b")))

    assert encode_txn(build()).SerializeToString() == encode_txn(build()).SerializeToString()


@pytest.mark.parametrize(
    ("target", "value", "kind"),
    [
        ("mod", 0, "mod_revision"),
        ("create", 5, "create_revision"),
        ("version", 0, "version"),
        ("value", b"", "value"),
    ],
)
def test_a_compare_names_its_target_even_when_the_value_is_zero(
    target: Target, value: int | bytes, kind: str
) -> None:
    compare = encode_txn(Txn((Compare(b"k", target, "=", value),))).compare[0]
    assert compare.WhichOneof("target_union") == kind
    assert pb.Compare.CompareTarget.Name(compare.target).lower() == target
    assert getattr(compare, kind) == value


@pytest.mark.parametrize(
    ("op", "name"), [("=", "EQUAL"), ("!=", "NOT_EQUAL"), ("<", "LESS"), (">", "GREATER")]
)
def test_operators_keep_their_meaning(op: Operator, name: str) -> None:
    compare = encode_txn(Txn((Compare(b"k", "mod", op, 1),))).compare[0]
    assert pb.Compare.CompareResult.Name(compare.result) == name


def test_an_empty_nested_txn_is_still_sent() -> None:
    request = encode_txn(Txn(success=(Txn(),)))
    assert request.success[0].WhichOneof("request") == "request_txn"


def test_a_range_inside_a_txn_has_no_revision() -> None:
    nested = Txn(success=(Range(b"a", b"b", limit=3, keys_only=True),))
    sent = encode_txn(nested).success[0].request_range
    assert (sent.key, sent.range_end, sent.limit, sent.keys_only, sent.revision) == (b"a", b"b", 3, True, 0)


def test_nested_results_carry_the_revision_of_the_whole_request() -> None:
    answer = pb.TxnResponse(header=pb.ResponseHeader(revision=50), succeeded=True)
    inner = answer.responses.add().response_txn
    inner.header.revision = 3  # what etcd fills in here is unreliable
    inner.responses.add().response_put.header.revision = 4
    found = inner.responses.add().response_range
    found.kvs.add(key=b"k", value=b"v", mod_revision=9, create_revision=8, version=2, lease=1)
    result = decode_txn(answer, answer.header.revision)
    nested = result.responses[0]
    assert isinstance(nested, TxnResult)
    assert nested.revision == 50
    assert [r.revision for r in nested.responses] == [50, 50]
    read = nested.responses[1]
    assert isinstance(read, RangeResult)
    kv = read.kvs[0]
    assert (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease) == (
        *(b"k", b"v"),
        *(8, 9, 2, 1),
    )


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", UnknownKind.TIMEOUT),
        (Code.UNAVAILABLE, "etcdserver: request timed out", UnknownKind.TIMEOUT),
        (
            Code.UNAVAILABLE,
            "etcdserver: request timed out, possibly due to previous leader failure",
            UnknownKind.TIMEOUT,
        ),
        (Code.UNAVAILABLE, "etcdserver: leader changed", UnknownKind.LEADER),
        (Code.UNAVAILABLE, "etcdserver: no leader", UnknownKind.LEADER),
        (Code.UNAVAILABLE, "Socket closed", UnknownKind.UNAVAILABLE),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", UnknownKind.NOSPACE),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", UnknownKind.OVERLOADED),
        (
            Code.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (9 vs. 4)",
            UnknownKind.OVERLOADED,
        ),
        (Code.CANCELLED, "context canceled", UnknownKind.OTHER),
        (Code.UNKNOWN, "raft proposal dropped", UnknownKind.OTHER),
        (Code.INTERNAL, "stream terminated", UnknownKind.OTHER),
        (Code.ABORTED, "", UnknownKind.OTHER),
        (Code.DATA_LOSS, "", UnknownKind.OTHER),
    ],
)
def test_what_may_have_been_applied_is_unknown(code: Code, detail: str, kind: UnknownKind) -> None:
    failure = classify(code, detail, "e:1")
    assert isinstance(failure, EtcdUnknown)
    assert failure.kind is kind


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (Code.INVALID_ARGUMENT, "etcdserver: too many operations in txn request"),
        (Code.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request"),
        (Code.INVALID_ARGUMENT, "etcdserver: request is too large"),
        (Code.NOT_FOUND, "etcdserver: requested lease not found"),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied"),
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token"),
        (Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"),
        (Code.RESOURCE_EXHAUSTED, "grpc: received message larger than max (3 vs. 2)"),
    ],
)
def test_what_was_refused_before_it_was_proposed_is_definite(code: Code, detail: str) -> None:
    assert isinstance(classify(code, detail, "e:1"), EtcdRejected)


@pytest.mark.parametrize(
    ("text", "target", "secure"),
    [
        ("http://127.0.0.1:2379", "127.0.0.1:2379", False),
        ("https://etcd.example:2380/", "etcd.example:2380", True),
        ("etcd:1", "etcd:1", False),
        ("http://etcd", "etcd:2379", False),
        ("http://[::1]:2379", "[::1]:2379", False),
    ],
)
def test_endpoints_are_read(text: str, target: str, secure: bool) -> None:
    assert Endpoint.parse(text) == Endpoint(target, secure)


@pytest.mark.parametrize("text", ["", "ftp://a:1", "http://a:x", "http://a:99999", "http://a:1/path"])
def test_an_endpoint_that_is_none_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadEndpoint, match="etcd endpoint"):
        Endpoint.parse(text)
