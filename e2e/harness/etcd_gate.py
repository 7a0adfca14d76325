"""A proxy before etcd that kills a process at an exact point of a protocol, because it reads each request.

The trap springs at the first request that matches: it kills the process that sent the request. etcd never gets that
request (`Side.BEFORE`), or applies it (`Side.AFTER`); it is never answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn, Self

import grpc
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.transport import CHANNEL_OPTIONS

SPRUNG_S = 60.0
CALLS_MAX = 128
"""Each watch and each stream of keepalives needs a thread as well."""
STREAMS = ("/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive")

Request = pb.RangeRequest | pb.TxnRequest
_READ: dict[str, type[Request]] = {
    "/etcdserverpb.KV/Range": pb.RangeRequest,
    "/etcdserverpb.KV/Txn": pb.TxnRequest,
}
Matches = Callable[[Request], bool]


class Side(Enum):
    BEFORE = "etcd never gets it"
    AFTER = "etcd applies it, and its answer is lost"


@dataclass(slots=True)
class Trap:
    """Springs at a request that matches, after the first `passing` of them, and stops all later ones that match."""

    matches: Matches
    kill: Callable[[], None]
    side: Side = Side.BEFORE
    passing: int = 0
    _sprung: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: int = 0

    def catches(self, request: Request) -> bool:
        if not self.matches(request):
            return False
        with self._lock:
            self._seen += 1
            return self._seen > self.passing

    def spring(self) -> None:
        self.kill()
        self._sprung.set()

    def wait(self) -> None:
        """Until it has sprung."""
        assert self._sprung.wait(SPRUNG_S), f"after {SPRUNG_S:.0f} s still no request has come into the trap"


class EtcdGate:
    """`with EtcdGate(endpoint) as gate:` then connect to `gate.endpoint`."""

    def __init__(self, etcd: str) -> None:
        self._channel = grpc.insecure_channel(etcd.removeprefix("http://"), options=CHANNEL_OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(CALLS_MAX), options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._trap: Trap | None = None
        self._dead: set[str] = set()  # connections of processes that a trap has killed

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0)
        self._channel.close()

    def set(self, trap: Trap) -> Trap:
        self._trap = trap
        return trap

    def clear(self) -> None:
        """Once the process is dead. Its successor passes, and what the dead one has sent before does not."""
        self._trap = None

    def unary(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        if context.peer() in self._dead:
            context.abort(grpc.StatusCode.UNAVAILABLE, "its sender is dead")
        trap, kind = self._trap, _READ.get(method)
        if trap is None or kind is None or not trap.catches(kind.FromString(body)):
            return self._forward(method, body, context)
        if trap.side is Side.AFTER:
            self._forward(method, body, context)
        self._dead.add(context.peer())
        trap.spring()
        context.abort(grpc.StatusCode.UNAVAILABLE, "it went into the trap")

    def _forward(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        call: Any = self._channel.unary_unary(method)
        try:
            answer: bytes = call(body, timeout=context.time_remaining(), metadata=_metadata(context))
        except grpc.RpcError as error:
            _fail(context, error)
        return answer

    def stream(
        self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        begin: Any = self._channel.stream_stream(method)
        call = begin(requests, metadata=_metadata(context))
        context.add_callback(call.cancel)
        try:
            yield from call
        except grpc.RpcError as error:
            _fail(context, error)


def _metadata(context: grpc.ServicerContext) -> list[tuple[str, str | bytes]]:
    return [(key, value) for key, value in context.invocation_metadata() if key == "hasleader"]


def _fail(context: grpc.ServicerContext, error: Any) -> NoReturn:
    context.abort(error.code(), error.details() or "")


class _Handlers(grpc.GenericRpcHandler):
    """Any method, as bytes."""

    def __init__(self, gate: EtcdGate) -> None:
        self._gate = gate

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = details.method
        if method in STREAMS:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._gate.stream(method, requests, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda body, context: self._gate.unary(method, body, context)
        )
