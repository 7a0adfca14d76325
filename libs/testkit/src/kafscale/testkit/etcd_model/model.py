"""One etcd: requests of etcd's v3 API in, answers out, each in one atomic step. Pure: time comes with `advance`.

The laws are etcd's own, and `tests/test_etcd_model.py` holds the model and a real etcd to the same answers. A cluster
of members is one model: members differ in connections, and those belong to the server in front of it.
It has no users: a login is refused as by an etcd without authentication.

A test may put back an older state (`snapshot`, `restore`), and fill the database (`full`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.ops import KeyValue, Txn, TxnResult, decode_txn, encode_txn
from kafscale.testkit.etcd_model.checks import (
    check,
    compacted,
    future,
    lease_exists,
    no_lease,
    no_space,
    no_users,
    writes,
)
from kafscale.testkit.etcd_model.history import History, Span
from kafscale.testkit.etcd_model.watches import Watches, WatchSession

VERSION: Final = "3.4.23"
LEASE_TTL_MIN_S: Final = 1
"""etcd has at least one and a half election timeouts. The default of a cluster makes that 2 s."""
CLUSTER_ID: Final = 14_841_639_068_965_178_418
MEMBER_ID: Final = 10_276_657_743_932_975_437


@dataclass(frozen=True, slots=True)
class Lease:
    ttl_s: int
    expires_s: float


@dataclass(slots=True)
class State:
    """What a snapshot of etcd holds."""

    history: History = field(default_factory=History)
    leases: dict[int, Lease] = field(default_factory=dict)

    def copy(self) -> State:
        return State(self.history.copy(), dict(self.leases))


class EtcdModel:
    def __init__(self, revision: int = 1) -> None:
        """Empty, at this revision."""
        self._state = State(History(revision, revision if revision > 1 else 0))
        self._now_s = 0.0
        self._lease_ids = 0
        self.alarm = False
        """NOSPACE: what writes more bytes is refused, and nothing of it is written."""
        self.full = False
        """The database is over its quota: the next request that writes more bytes is applied, is answered with an
        error, and raises the alarm."""
        self.watches = Watches(lambda: self._state.history, self._header)
        self._serves: dict[type[Message], Callable[[Any], Message]] = {
            pb.RangeRequest: self._range,
            pb.PutRequest: self._put,
            pb.DeleteRangeRequest: self._delete,
            pb.TxnRequest: self._txn,
            pb.CompactionRequest: self._compact,
            pb.LeaseGrantRequest: self._grant,
            pb.LeaseRevokeRequest: self._revoke,
            pb.LeaseKeepAliveRequest: self._keep_alive,
            pb.LeaseTimeToLiveRequest: self._time_to_live,
            pb.StatusRequest: self._status,
            pb.AlarmRequest: self._alarm,
            pb.DefragmentRequest: lambda _: pb.DefragmentResponse(header=self._header()),
            pb.AuthenticateRequest: self._authenticate,
        }

    def serve(self, request: Message) -> Message:
        """The answer to any request but those of watches. Raises Refused; of `no_space` the outcome is unknown."""
        check(request)
        if not writes(request):
            return self._serves[type(request)](request)
        if self.alarm:
            raise no_space()
        answer = self._serves[type(request)](request)
        if self.full:
            self.alarm = True
            raise no_space()
        return answer

    def watch(self, send: Callable[[pb.WatchResponse], None]) -> WatchSession:
        """A stream of watches. `send` is called in the step that changes a key."""
        return self.watches.open(send)

    def advance(self, now_s: float) -> None:
        """Time is now `now_s`: leases expire, those that are due first."""
        assert now_s >= self._now_s, "time of etcd goes forward"
        self._now_s = now_s
        due = [
            (lease.expires_s, name) for name, lease in self._state.leases.items() if lease.expires_s <= now_s
        ]
        for _, name in sorted(due):
            self._end_lease(name)

    def next_expiry_s(self) -> float | None:
        return min((lease.expires_s for lease in self._state.leases.values()), default=None)

    def change_leader(self, now_s: float) -> None:
        """Time is now `now_s`, and no lease has expired since the last leader was lost. The new leader gives each lease
        its full time again, as it does not know when it was renewed."""
        self._now_s = now_s
        for name, lease in self._state.leases.items():
            self._state.leases[name] = replace(lease, expires_s=self._now_s + lease.ttl_s)

    def snapshot(self) -> State:
        return self._state.copy()

    def restore(self, state: State) -> None:
        """All as it was. Whoever watches must connect again: close the sessions first."""
        assert not self.watches.sessions, "an etcd that is restored has no connections"
        self._state = state.copy()
        self.change_leader(self._now_s)

    # -- what tests ask without a request ----------------------------------------------------------

    @property
    def revision(self) -> int:
        return self._state.history.revision

    @property
    def compacted(self) -> int:
        return self._state.history.compacted

    def get(self, key: bytes) -> KeyValue | None:
        return self._state.history.get(key)

    def under(self, prefix: bytes) -> list[KeyValue]:
        return [kv for kv in self._state.history.find(Span(prefix, b"\0")) if kv.key.startswith(prefix)]

    def txn(self, txn: Txn) -> TxnResult:
        """As a client's. Raises Refused."""
        answer = self.serve(encode_txn(txn))
        assert isinstance(answer, pb.TxnResponse)
        return decode_txn(answer, answer.header.revision)

    # -- keys --------------------------------------------------------------------------------------

    def _header(self) -> pb.ResponseHeader:
        return pb.ResponseHeader(
            cluster_id=CLUSTER_ID, member_id=MEMBER_ID, revision=self.revision, raft_term=2
        )

    def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        answer = self._read(request)
        answer.header.CopyFrom(self._header())
        return answer

    def _read(self, request: pb.RangeRequest) -> pb.RangeResponse:
        history, span = self._state.history, Span(request.key, request.range_end)
        if request.revision > history.revision:
            raise future()
        if 0 < request.revision < history.compacted:
            raise compacted()
        found = history.find_at(span, request.revision) if request.revision > 0 else history.find(span)
        answer = pb.RangeResponse(count=len(found))
        if not request.count_only:
            shown = found[: request.limit] if request.limit > 0 else found
            answer.more = len(shown) < len(found)
            answer.kvs.extend(shown_kv(kv, keys_only=request.keys_only) for kv in shown)
        return answer

    def _put(self, request: pb.PutRequest) -> pb.PutResponse:
        self._must_exist(request.lease)
        answer = pb.PutResponse()
        self._write(partial(self._do_put, request, answer))
        answer.header.CopyFrom(self._header())
        return answer

    def _delete(self, request: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
        answer = pb.DeleteRangeResponse()
        self._write(partial(self._do_delete, request, answer))
        answer.header.CopyFrom(self._header())
        return answer

    def _txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        # Compares, also nested ones, see the state before the whole request.
        path = self._judge(request)
        self._check_chosen(request, iter(path))
        answer = pb.TxnResponse()
        self._write(lambda revision: self._do_txn(request, iter(path), answer, revision))
        answer.header.CopyFrom(self._header())
        return answer

    def _write(self, do: Callable[[int], int]) -> None:
        """`do` takes the revision of the changes, and returns their number."""
        history = self._state.history
        after = history.revision + 1
        if do(after):
            history.revision = after
            self.watches.changed(after, history.newest())

    def _do_put(self, request: pb.PutRequest, answer: pb.PutResponse, revision: int) -> int:
        history = self._state.history
        old = history.get(request.key)
        if request.prev_kv and old is not None:
            answer.prev_kv.CopyFrom(shown_kv(old))
        history.put(request.key, request.value, request.lease, revision)
        return 1

    def _do_delete(
        self, request: pb.DeleteRangeRequest, answer: pb.DeleteRangeResponse, revision: int
    ) -> int:
        found = self._state.history.find(Span(request.key, request.range_end))
        for kv in found:
            self._state.history.delete(kv.key, revision)
        answer.deleted = len(found)
        if request.prev_kv:
            answer.prev_kvs.extend(shown_kv(kv) for kv in found)
        return len(found)

    def _judge(self, txn: pb.TxnRequest) -> list[bool]:
        """Which branches are executed: of this transaction, then of those in its branch, in order."""
        holds = all(self._holds(compare) for compare in txn.compare)
        path = [holds]
        for op in txn.success if holds else txn.failure:
            if op.WhichOneof("request") == "request_txn":
                path += self._judge(op.request_txn)
        return path

    def _holds(self, compare: pb.Compare) -> bool:
        found = self._state.history.find(Span(compare.key, compare.range_end))
        if not found:  # a key without a value has none to compare
            return compare.target != pb.Compare.VALUE and _compares(compare, KeyValue(b"", b"", 0, 0, 0, 0))
        return all(_compares(compare, kv) for kv in found)

    def _check_chosen(self, txn: pb.TxnRequest, path: Iterable[bool]) -> None:
        """Raises Refused for what etcd sees only when it applies the request; it still writes nothing then."""
        path = iter(path)
        for op in txn.success if next(path) else txn.failure:
            match op.WhichOneof("request"):
                case "request_put":
                    self._must_exist(op.request_put.lease)
                case "request_txn":
                    self._check_chosen(op.request_txn, path)
                case "request_range":
                    self._read(op.request_range)

    def _do_txn(self, txn: pb.TxnRequest, path: Iterable[bool], answer: pb.TxnResponse, revision: int) -> int:
        path, changes = iter(path), 0
        answer.succeeded = next(path)
        for op in txn.success if answer.succeeded else txn.failure:
            response = answer.responses.add()
            match op.WhichOneof("request"):
                case "request_range":
                    response.response_range.CopyFrom(self._read(op.request_range))
                case "request_put":
                    response.response_put.SetInParent()
                    changes += self._do_put(op.request_put, response.response_put, revision)
                case "request_delete_range":
                    response.response_delete_range.SetInParent()
                    changes += self._do_delete(
                        op.request_delete_range, response.response_delete_range, revision
                    )
                case "request_txn":
                    response.response_txn.SetInParent()
                    changes += self._do_txn(op.request_txn, path, response.response_txn, revision)
        return changes

    def _compact(self, request: pb.CompactionRequest) -> pb.CompactionResponse:
        history = self._state.history
        if request.revision <= history.compacted:
            raise compacted()
        if request.revision > history.revision:
            raise future()
        history.compact(request.revision)
        return pb.CompactionResponse(header=self._header())

    # -- leases ------------------------------------------------------------------------------------

    def _must_exist(self, lease: int) -> None:
        if lease and lease not in self._state.leases:
            raise no_lease()

    def _grant(self, request: pb.LeaseGrantRequest) -> pb.LeaseGrantResponse:
        name = request.ID
        if not name:
            self._lease_ids += 1
            name = 7_587_000_000_000_000_000 + self._lease_ids
        if name in self._state.leases:
            raise lease_exists()
        ttl_s = max(request.TTL, LEASE_TTL_MIN_S)
        self._state.leases[name] = Lease(ttl_s, self._now_s + ttl_s)
        return pb.LeaseGrantResponse(header=self._header(), ID=name, TTL=ttl_s)

    def _revoke(self, request: pb.LeaseRevokeRequest) -> pb.LeaseRevokeResponse:
        if request.ID not in self._state.leases:
            raise no_lease()
        self._end_lease(request.ID)
        return pb.LeaseRevokeResponse(header=self._header())

    def _end_lease(self, name: int) -> None:
        del self._state.leases[name]
        held = self._held(name)

        def delete(revision: int) -> int:
            for key in held:
                self._state.history.delete(key, revision)
            return len(held)

        self._write(delete)

    def _held(self, lease: int) -> list[bytes]:
        return [kv.key for kv in self._state.history.find(Span(b"\0", b"\0")) if kv.lease == lease]

    def _keep_alive(self, request: pb.LeaseKeepAliveRequest) -> pb.LeaseKeepAliveResponse:
        """TTL 0: there is no such lease."""
        lease = self._state.leases.get(request.ID)
        if lease is None:
            return pb.LeaseKeepAliveResponse(header=self._header(), ID=request.ID)
        self._state.leases[request.ID] = replace(lease, expires_s=self._now_s + lease.ttl_s)
        return pb.LeaseKeepAliveResponse(header=self._header(), ID=request.ID, TTL=lease.ttl_s)

    def _time_to_live(self, request: pb.LeaseTimeToLiveRequest) -> pb.LeaseTimeToLiveResponse:
        """TTL -1: there is no such lease."""
        lease = self._state.leases.get(request.ID)
        if lease is None:
            return pb.LeaseTimeToLiveResponse(header=self._header(), ID=request.ID, TTL=-1)
        return pb.LeaseTimeToLiveResponse(
            header=self._header(),
            ID=request.ID,
            TTL=int(lease.expires_s - self._now_s),
            grantedTTL=lease.ttl_s,
            keys=self._held(request.ID) if request.keys else (),
        )

    # -- operations --------------------------------------------------------------------------------

    def _status(self, _request: pb.StatusRequest) -> pb.StatusResponse:
        size = self._state.history.bytes_in_use()
        return pb.StatusResponse(
            header=self._header(),
            version=VERSION,
            dbSize=size,
            dbSizeInUse=size,
            leader=MEMBER_ID,
            raftTerm=2,
            errors=[f"memberID:{MEMBER_ID} alarm:NOSPACE "] if self.alarm else [],
        )

    def _alarm(self, request: pb.AlarmRequest) -> pb.AlarmResponse:
        alarms = [pb.AlarmMember(memberID=MEMBER_ID, alarm=pb.NOSPACE)] if self.alarm else []
        if request.action == pb.AlarmRequest.ACTIVATE:
            self.alarm = True
        elif request.action == pb.AlarmRequest.DEACTIVATE:
            self.alarm = False
        return pb.AlarmResponse(header=pb.ResponseHeader(), alarms=alarms)

    def _authenticate(self, _request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        raise no_users()


def shown_kv(kv: KeyValue, *, keys_only: bool = False) -> pb.KeyValue:
    return pb.KeyValue(
        key=kv.key,
        create_revision=kv.create_revision,
        mod_revision=kv.mod_revision,
        version=kv.version,
        value=b"" if keys_only else kv.value,
        lease=kv.lease,
    )


def _compares(compare: pb.Compare, kv: KeyValue) -> bool:
    match compare.target:
        case pb.Compare.VALUE:
            order = (kv.value > compare.value) - (kv.value < compare.value)
        case pb.Compare.VERSION:
            order = kv.version - compare.version
        case pb.Compare.CREATE:
            order = kv.create_revision - compare.create_revision
        case pb.Compare.MOD:
            order = kv.mod_revision - compare.mod_revision
        case _:
            order = kv.lease - compare.lease
    match compare.result:
        case pb.Compare.EQUAL:
            return order == 0
        case pb.Compare.NOT_EQUAL:
            return order != 0
        case pb.Compare.GREATER:
            return order > 0
        case _:
            return order < 0
