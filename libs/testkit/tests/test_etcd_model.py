"""The model of etcd and a real etcd give the same answers to the same requests, refusals included."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import Compare, Put, Txn
from kafscale.storage.etcd.pool import (
    ALARM,
    COMPACT,
    DELETE_RANGE,
    LEASE_GRANT,
    LEASE_KEEPALIVE,
    LEASE_REVOKE,
    LEASE_TTL,
    PUT,
    RANGE,
    STATUS,
    TXN,
    WATCH,
    Method,
    serialize,
)
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.etcd_model.checks import OPERATIONS_MAX, REQUEST_BYTES_MAX, Refused
from kafscale.testkit.etcd_model.model import EtcdModel

ALL = b"\0"
CALL_S = 10.0
LEASE_S = 3_600
FUTURE = 2
"""A watch may begin so many revisions after the newest."""

KEYS = (b"a", b"ab", b"b", b"c", b"d")
METHODS: dict[type[Message], Method[Any]] = {
    pb.RangeRequest: RANGE,
    pb.PutRequest: PUT,
    pb.DeleteRangeRequest: DELETE_RANGE,
    pb.TxnRequest: TXN,
    pb.CompactionRequest: COMPACT,
    pb.LeaseGrantRequest: LEASE_GRANT,
    pb.LeaseRevokeRequest: LEASE_REVOKE,
    pb.LeaseTimeToLiveRequest: LEASE_TTL,
    pb.AlarmRequest: ALARM,
    pb.StatusRequest: STATUS,
}


@dataclass
class Refusal:
    code: grpc.StatusCode
    details: str


def over(response: pb.WatchResponse, revision: int) -> bool:
    return response.canceled or any(event.kv.mod_revision >= revision for event in response.events)


class Real:
    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", -1)])
        self.streams: list[grpc.Call] = []

    def ask(self, request: Message) -> Message | Refusal:
        try:
            if isinstance(request, pb.LeaseKeepAliveRequest):
                call = self._stream(LEASE_KEEPALIVE, iter([request]))
                [answer] = list(call)
                return answer  # type: ignore[no-any-return]
            method = METHODS[type(request)]
            call = self.channel.unary_unary(method.path, serialize, method.answer.FromString)
            return call(request, timeout=CALL_S)  # type: ignore[no-any-return]
        except grpc.RpcError as error:
            status: Any = error
            return Refusal(status.code(), status.details())

    def watch(self, request: pb.WatchCreateRequest) -> RealWatch:
        return RealWatch(self, request)

    def _stream(self, method: Method[Any], requests: Iterator[Message]) -> Any:
        call = self.channel.stream_stream(method.path, serialize, method.answer.FromString)
        return call(requests, timeout=6 * CALL_S)

    def open(self, method: Method[Any], requests: Iterator[Message]) -> Any:
        call = self._stream(method, requests)
        self.streams.append(call)
        return call

    def close(self) -> None:
        for stream in self.streams:
            stream.cancel()
        self.streams.clear()


class RealWatch:
    def __init__(self, real: Real, request: pb.WatchCreateRequest) -> None:
        requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
        requests.put(pb.WatchRequest(create_request=request))
        self.call = real.open(WATCH, iter(requests.get, None))
        self.responses = [next(self.call)]  # it is created before the next request is sent

    def catch_up(self, others: list[pb.WatchResponse]) -> None:
        """Reads until it has what the other one has."""
        if others[-1].canceled:
            self.read_until(0)
        elif others[-1].events:
            self.read_until(others[-1].events[-1].kv.mod_revision)

    def read_until(self, revision: int) -> None:
        while not over(self.responses[-1], revision):
            self.responses.append(next(self.call))

    def until(self, revision: int) -> list[pb.WatchResponse]:
        self.read_until(revision)
        self.call.cancel()
        return self.responses


class Modelled:
    def __init__(self, model: EtcdModel) -> None:
        self.model = model

    def ask(self, request: Message) -> Message | Refusal:
        try:
            return self.model.serve(request)
        except Refused as refused:
            return Refusal(refused.code, refused.details)

    def watch(self, request: pb.WatchCreateRequest) -> ModelWatch:
        return ModelWatch(self.model, request)


class ModelWatch:
    def __init__(self, model: EtcdModel, request: pb.WatchCreateRequest) -> None:
        self.responses: list[pb.WatchResponse] = []
        self.session = model.watch(self.responses.append)
        self.session.receive(pb.WatchRequest(create_request=request))

    def until(self, revision: int) -> list[pb.WatchResponse]:
        assert over(self.responses[-1], revision), "the model sends in the step that changes a key"
        self.session.close()
        return self.responses


# -- requests; revisions are given as distances from the newest -------------------------------------

keys = st.sampled_from(KEYS)
ends = st.sampled_from((b"", b"", b"b", b"c", b"\0"))
values = st.sampled_from((b"", b"1", b"2", b"3"))
leases = st.sampled_from((0, 0, 1, 2))
booleans = st.booleans()

Build = Callable[[int, int], Message]
"""Of the newest revision, and the number with which the names of leases begin."""


def put_of(key: bytes, value: bytes, lease: int, prev: bool, base: int) -> pb.PutRequest:
    return pb.PutRequest(key=key, value=value, lease=lease and base + lease, prev_kv=prev)


@st.composite
def compares(draw: st.DrawFn) -> Build:
    target, result, key = draw(st.integers(0, 4)), draw(st.integers(0, 3)), draw(keys)
    end = draw(st.sampled_from((b"", b"", b"", b"c", b"\0")))
    number, value, back = draw(st.integers(0, 3)), draw(values), draw(st.integers(0, 4))

    def build(revision: int, base: int) -> pb.Compare:
        compare = pb.Compare(target=target, result=result, key=key, range_end=end)  # type: ignore[arg-type]
        match target:
            case pb.Compare.VALUE:
                compare.value = value
            case pb.Compare.VERSION:
                compare.version = number
            case pb.Compare.CREATE:
                compare.create_revision = max(0, revision - back)
            case pb.Compare.MOD:
                compare.mod_revision = max(0, revision - back)
            case _:
                compare.lease = number and base + number
        return compare

    return build


@st.composite
def operations(draw: st.DrawFn, depth: int) -> Build:
    kind = draw(st.sampled_from(("put", "put", "range", "delete", "txn" if depth else "put")))
    key, end, value, lease, prev = draw(keys), draw(ends), draw(values), draw(leases), draw(booleans)
    limit = draw(st.integers(0, 2))
    inner = draw(txns(depth - 1)) if kind == "txn" else None

    def build(revision: int, base: int) -> pb.RequestOp:
        match kind:
            case "put":
                return pb.RequestOp(request_put=put_of(key, value, lease, prev, base))
            case "range":
                return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end, limit=limit))
            case "delete":
                return pb.RequestOp(
                    request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end, prev_kv=prev)
                )
            case _:
                assert inner is not None
                made = inner(revision, base)
                assert isinstance(made, pb.TxnRequest)
                return pb.RequestOp(request_txn=made)

    return build


@st.composite
def txns(draw: st.DrawFn, depth: int = 2) -> Build:
    parts = (
        draw(st.lists(compares(), max_size=2)),
        draw(st.lists(operations(depth), max_size=3)),
        draw(st.lists(operations(depth), max_size=2)),
    )

    def build(revision: int, base: int) -> pb.TxnRequest:
        compare, success, failure = ([part(revision, base) for part in some] for some in parts)
        return pb.TxnRequest(compare=compare, success=success, failure=failure)  # type: ignore[arg-type]

    return build


@st.composite
def ranges(draw: st.DrawFn) -> Build:
    key, end, limit = draw(st.sampled_from((*KEYS, b""))), draw(ends), draw(st.integers(0, 3))
    back = draw(st.none() | st.integers(-1, 6))
    only = draw(st.sampled_from(("", "", "keys", "count")))

    def build(revision: int, _base: int) -> pb.RangeRequest:
        return pb.RangeRequest(
            key=key,
            range_end=end,
            limit=limit,
            revision=0 if back is None else max(1, revision - back),
            keys_only=only == "keys",
            count_only=only == "count",
        )

    return build


def built(made: Callable[[int, int], Message]) -> Build:
    return made


requests = st.one_of(
    txns(),
    txns(),
    ranges(),
    st.builds(
        lambda key, value, lease, prev: lambda _revision, base: put_of(key, value, lease, prev, base),
        st.sampled_from((*KEYS, b"")),
        values,
        leases,
        booleans,
    ),
    st.builds(
        lambda key, end, prev: lambda *_: pb.DeleteRangeRequest(key=key, range_end=end, prev_kv=prev),
        keys,
        ends,
        booleans,
    ),
    st.builds(
        lambda back: lambda revision, _: pb.CompactionRequest(revision=revision - back, physical=True),
        st.integers(-1, 4),
    ),
    st.builds(
        lambda lease: lambda _, base: pb.LeaseGrantRequest(ID=base + lease, TTL=LEASE_S), st.integers(1, 2)
    ),
    st.builds(lambda lease: lambda _, base: pb.LeaseRevokeRequest(ID=base + lease), st.integers(1, 2)),
    st.builds(lambda lease: lambda _, base: pb.LeaseKeepAliveRequest(ID=base + lease), st.integers(1, 2)),
    st.builds(
        lambda lease: lambda _, base: pb.LeaseTimeToLiveRequest(ID=base + lease, keys=True),
        st.integers(1, 2),
    ),
)
watches = st.builds(
    lambda key, end, back: (
        lambda revision, _: pb.WatchCreateRequest(
            key=key, range_end=end, start_revision=max(1, revision - back), fragment=True
        )
    ),
    st.just(b"a"),
    st.sampled_from((b"", b"b", b"\0")),
    st.integers(-FUTURE, 6),
)
stories = st.lists(st.one_of(requests, requests, requests, requests, watches), min_size=1, max_size=25)


# -- the comparison -----------------------------------------------------------------------------------


def plain(answer: object) -> object:
    """Without what depends on the member and on the moment."""
    if not isinstance(answer, Message):
        return answer
    copy = type(answer).FromString(answer.SerializeToString())
    _forget(copy)
    if isinstance(copy, pb.LeaseTimeToLiveResponse) and copy.TTL > 0:
        copy.TTL = copy.grantedTTL
    return copy


def _forget(message: Any) -> None:
    """Headers inside of transactions are not what they say (`ops.py`), so nobody reads them."""
    if isinstance(message, pb.TxnResponse):
        for op in message.responses:
            inner = getattr(op, op.WhichOneof("response"))
            _forget(inner)
            inner.ClearField("header")
            getattr(op, op.WhichOneof("response")).SetInParent()
    for name in ("cluster_id", "member_id", "raft_term"):
        message.header.ClearField(name)


def gist(responses: list[pb.WatchResponse]) -> tuple[list[pb.Event], int, bool]:
    """Real etcd divides the events of a watch into responses as its timing wants."""
    events = [event for response in responses for event in response.events]
    return events, responses[-1].compact_revision, responses[-1].canceled


@dataclass
class Pair:
    real: Real
    model: Modelled
    lease_base: int
    watches: list[tuple[RealWatch, ModelWatch]] = field(default_factory=list)

    def do(self, request: Message) -> None:
        if isinstance(request, pb.WatchCreateRequest):
            if request.start_revision == self.model.model.compacted:
                request.start_revision += 1  # real etcd 3.4 may have forgotten a deletion at that revision
            real_watch, model_watch = self.real.watch(request), self.model.watch(request)
            self.watches.append((real_watch, model_watch))
            if request.start_revision <= self.model.model.revision:
                # Real etcd reads the past in its own time, and a compaction must not come before that.
                self.do(pb.PutRequest(key=b"a", value=b"past"))
                real_watch.catch_up(model_watch.responses)
            return
        real, model = self.real.ask(request), self.model.ask(request)
        assert plain(model) == plain(real), f"to {str(request)[:1_000]}"

    def end(self) -> None:
        """Last events, which all watches see, also those that begin in the future."""
        for _ in range(FUTURE + 1):
            self.do(pb.PutRequest(key=b"a", value=b"end"))
        revision = self.model.model.revision
        for real, model in self.watches:
            assert gist(model.until(revision)) == gist(real.until(revision))


class Etcd:
    """A real etcd, emptied for each story."""

    def __init__(self, process: EtcdProcess) -> None:
        self.real = Real(process.endpoint.removeprefix("http://"))
        self.stories = 0

    def pair(self) -> Pair:
        self.real.close()
        self.real.ask(pb.PutRequest(key=b"a"))
        emptied = self.real.ask(pb.DeleteRangeRequest(key=ALL, range_end=ALL))
        assert isinstance(emptied, pb.DeleteRangeResponse), emptied
        revision = emptied.header.revision
        assert isinstance(self.real.ask(pb.CompactionRequest(revision=revision)), pb.CompactionResponse)
        self.stories += 1
        return Pair(self.real, Modelled(EtcdModel(revision)), 1_000 * self.stories)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with start_etcd(tmp_path_factory.mktemp("etcd"), extra=("--unsafe-no-fsync",)) as process:
        yield Etcd(process)


def compare_stories(etcd: Etcd, story: list[Build]) -> None:
    pair = etcd.pair()
    for build in story:
        pair.do(build(pair.model.model.revision, pair.lease_base))
    pair.end()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories)
def test_a_story_of_requests_has_the_same_answers(etcd: Etcd, story: list[Build]) -> None:
    compare_stories(etcd, story)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
@settings(max_examples=2_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories)
def test_a_thousand_stories_have_the_same_answers(etcd: Etcd, story: list[Build]) -> None:
    compare_stories(etcd, story)


def put(key: bytes, size: int = 1) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=b"v" * size))


def nested(txn: pb.TxnRequest) -> pb.TxnRequest:
    return pb.TxnRequest(success=[pb.RequestOp(request_txn=txn)])


def many(count: int) -> pb.TxnRequest:
    return pb.TxnRequest(success=[put(b"%d" % number) for number in range(count)])


@pytest.mark.parametrize(
    "request_",
    [
        many(OPERATIONS_MAX),
        many(OPERATIONS_MAX + 1),
        nested(many(OPERATIONS_MAX - 1)),
        nested(many(OPERATIONS_MAX)),
        nested(nested(many(OPERATIONS_MAX - 1))),
        pb.TxnRequest(success=[put(b"")]),
        pb.TxnRequest(compare=[pb.Compare(version=1)]),
        pb.PutRequest(key=b"a", value=b"v" * (REQUEST_BYTES_MAX - 1_024)),
        pb.PutRequest(key=b"a", value=b"v" * REQUEST_BYTES_MAX),
        pb.LeaseGrantRequest(TTL=10, ID=1),
        pb.AlarmRequest(action=pb.AlarmRequest.GET),
        pb.CompactionRequest(revision=1),
    ],
    ids=lambda request_: f"{type(request_).__name__}-{request_.ByteSize()}",
)
def test_the_limits_are_those_of_etcd(etcd: Etcd, request_: Message) -> None:
    pair = etcd.pair()
    pair.real.ask(pb.LeaseRevokeRequest(ID=1))
    pair.do(request_)
    pair.do(pb.RangeRequest(key=ALL, range_end=ALL, count_only=True))
    pair.end()


def test_a_lease_that_is_not_renewed_ends_with_its_keys(etcd: Etcd) -> None:
    pair = etcd.pair()
    lease = pair.lease_base + 1
    pair.do(pb.LeaseGrantRequest(ID=lease, TTL=1))
    for key in (b"ab", b"aa"):
        pair.do(pb.PutRequest(key=key, lease=lease))
    pair.do(pb.WatchCreateRequest(key=b"a", range_end=b"b", start_revision=pair.model.model.revision + 1))
    due_s = pair.model.model.next_expiry_s()
    assert due_s is not None
    pair.model.model.advance(due_s)
    [(real, _)] = pair.watches
    real.read_until(pair.model.model.revision)  # real time has to pass for it
    pair.do(pb.RangeRequest(key=ALL, range_end=ALL))
    pair.do(pb.LeaseKeepAliveRequest(ID=lease))
    pair.do(pb.LeaseRevokeRequest(ID=lease))
    [(real, model)] = pair.watches
    assert gist(model.responses) == gist(real.responses)


def test_a_lease_that_is_renewed_lives_on() -> None:
    model = EtcdModel()
    model.serve(pb.LeaseGrantRequest(ID=1, TTL=8))
    model.serve(pb.PutRequest(key=b"a", lease=1))
    model.advance(7)
    model.serve(pb.LeaseKeepAliveRequest(ID=1))
    model.advance(14.9)
    assert model.get(b"a") is not None
    model.advance(15)
    assert model.get(b"a") is None


def test_a_full_etcd_refuses_what_needs_room_until_the_alarm_is_cleared(tmp_path: Path) -> None:
    with start_etcd(tmp_path, quota_bytes=4 << 20, extra=("--unsafe-no-fsync",)) as process:
        real = Real(process.endpoint.removeprefix("http://"))
        filled: Message | Refusal = pb.PutResponse()
        while not isinstance(filled, Refusal):
            filled = real.ask(pb.PutRequest(key=b"a", value=b"v" * (1 << 20)))
        kept = real.ask(pb.RangeRequest(key=b"a"))
        assert isinstance(kept, pb.RangeResponse)
        model = EtcdModel(kept.header.revision)
        model.alarm = True
        pair = Pair(real, Modelled(model), 0)
        for request in (
            pb.PutRequest(key=b"b"),
            pb.TxnRequest(success=[put(b"b")]),
            nested(pb.TxnRequest(failure=[put(b"b")])),
            pb.LeaseGrantRequest(ID=1, TTL=10),
            pb.LeaseKeepAliveRequest(ID=1),
            pb.RangeRequest(key=b"b"),
            pb.TxnRequest(success=[pb.RequestOp(request_range=pb.RangeRequest(key=b"b"))]),
            pb.DeleteRangeRequest(key=b"b"),
        ):
            pair.do(request)
        raised = real.ask(pb.AlarmRequest(action=pb.AlarmRequest.GET))
        assert isinstance(raised, pb.AlarmResponse)
        answer = model.serve(pb.AlarmRequest(action=pb.AlarmRequest.GET))
        assert isinstance(answer, pb.AlarmResponse)
        assert [each.alarm for each in answer.alarms] == [each.alarm for each in raised.alarms]


def test_the_write_that_fills_etcd_is_applied_and_fails() -> None:
    model = EtcdModel()
    model.full = True
    with pytest.raises(Refused, match="space exceeded"):
        model.serve(pb.PutRequest(key=b"a"))
    assert model.get(b"a") is not None
    with pytest.raises(Refused, match="space exceeded"):
        model.serve(pb.PutRequest(key=b"b"))
    assert model.get(b"b") is None
    model.full = False
    model.serve(pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, alarm=pb.NOSPACE))
    model.serve(pb.PutRequest(key=b"b"))
    assert model.get(b"b") is not None


def test_a_snapshot_is_what_was_and_stays_as_it_is() -> None:
    model = EtcdModel()
    model.txn(Txn(success=(Put(b"a", b"1"),)))
    older, revision = model.snapshot(), model.revision
    model.txn(Txn((Compare(b"a", "value", "=", b"1"),), (Put(b"a", b"2"), Put(b"b", b""))))
    for _ in range(2):
        model.restore(older)
        assert model.revision == revision
        assert [kv.value for kv in model.under(b"")] == [b"1"]
        model.txn(Txn(success=(Put(b"a", b"3"),)))


def test_a_large_response_of_a_watch_comes_in_fragments() -> None:
    model = EtcdModel()
    for number in range(3):
        model.serve(pb.PutRequest(key=b"%d" % number, value=b"v" * (1 << 20)))
    seen: list[pb.WatchResponse] = []
    create = pb.WatchCreateRequest(key=b"\0", range_end=ALL, start_revision=2, fragment=True)
    model.watch(seen.append).receive(pb.WatchRequest(create_request=create))
    assert [(len(response.events), response.fragment) for response in seen[1:]] == [
        (1, True),
        (1, True),
        (1, False),
    ]
