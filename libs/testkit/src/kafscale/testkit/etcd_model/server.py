"""The model of etcd behind gRPC in memory: what an `EtcdClient` connects to, as it is.

Time is the running loop's: leases expire on it. `away` and `change_leader` are what a client sees of a cluster in
trouble; whatever a network can do to a request or to its answer is `memory_grpc/network.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.etcd.transport import Access, Endpoint
from kafscale.testkit.etcd_model.checks import Refused
from kafscale.testkit.etcd_model.model import EtcdModel, State
from kafscale.testkit.memory_grpc.channel import open_channel
from kafscale.testkit.memory_grpc.network import Network
from kafscale.testkit.memory_grpc.server import open_server

NODE: Final = "etcd"
ADDRESS: Final = "etcd:2379"
NO_LEADER: Final = "etcdserver: no leader"

_UNARY: Final[Mapping[str, Mapping[str, type[Message]]]] = {
    "etcdserverpb.KV": {
        "Range": pb.RangeRequest,
        "Put": pb.PutRequest,
        "DeleteRange": pb.DeleteRangeRequest,
        "Txn": pb.TxnRequest,
        "Compact": pb.CompactionRequest,
    },
    "etcdserverpb.Lease": {
        "LeaseGrant": pb.LeaseGrantRequest,
        "LeaseRevoke": pb.LeaseRevokeRequest,
        "LeaseTimeToLive": pb.LeaseTimeToLiveRequest,
    },
    "etcdserverpb.Maintenance": {
        "Alarm": pb.AlarmRequest,
        "Status": pb.StatusRequest,
        "Defragment": pb.DefragmentRequest,
    },
    "etcdserverpb.Auth": {"Authenticate": pb.AuthenticateRequest},
}


class EtcdServer:
    def __init__(self, network: Network) -> None:
        self.model = EtcdModel()
        self._network = network
        self._server = open_server(network, NODE)
        self._expiry: asyncio.TimerHandle | None = None
        self._is_away = False
        self._watching: dict[asyncio.Task[None], None] = {}
        for service, methods in _UNARY.items():
            handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
                name: grpc.unary_unary_rpc_method_handler(self._unary, request.FromString, _bytes)
                for name, request in methods.items()
            }
            if service.endswith("Lease"):
                handlers["LeaseKeepAlive"] = grpc.stream_stream_rpc_method_handler(
                    self._keep_alive, pb.LeaseKeepAliveRequest.FromString, _bytes
                )
            self._offer(service, handlers)
        watch = grpc.stream_stream_rpc_method_handler(self._watch, pb.WatchRequest.FromString, _bytes)
        self._offer("etcdserverpb.Watch", {"Watch": watch})

    def _offer(self, service: str, handlers: dict[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    async def start(self) -> None:
        self._server.add_insecure_port(ADDRESS)
        await self._server.start()

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        await self._server.stop(0)

    def client(self, node: str) -> EtcdClient:
        """Of a process."""
        return EtcdClient(self.access(node))

    def access(self, node: str) -> Access:
        def connect(endpoint: Endpoint) -> grpc.aio.Channel:
            return open_channel(self._network, node, endpoint.target)

        return Access(endpoints=(Endpoint.parse(ADDRESS),), connect=connect)

    def go_away(self) -> None:
        """No quorum: requests are refused, and watches end. Leases do not expire meanwhile."""
        self._is_away = True
        self._expect()
        for task in tuple(self._watching):
            task.cancel()

    def come_back(self) -> None:
        """With a new leader, which gives each lease its full time again."""
        self._is_away = False
        self.model.change_leader(asyncio.get_running_loop().time())
        self._expect()

    def restore(self, state: State) -> None:
        """An older snapshot takes the place of all that is there. Connections break."""
        for session in tuple(self.model.watches.sessions):
            session.close()
        self._network.drop_connections(NODE, "etcd was restored")
        self._advance()
        self.model.restore(state)
        self._expect()

    # -- time ------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        self.model.advance(asyncio.get_running_loop().time())

    def _expect(self) -> None:
        """A timer for the lease that expires next. One that comes too early, as its lease was renewed, looks again."""
        due_s = None if self._is_away else self.model.next_expiry_s()
        if self._expiry is not None:
            if due_s is not None and self._expiry.when() <= due_s:
                return
            self._expiry.cancel()
            self._expiry = None
        if due_s is not None:
            self._expiry = asyncio.get_running_loop().call_at(due_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._advance()
        self._expect()

    # -- methods ---------------------------------------------------------------------------------------

    async def _unary(self, request: Message, context: Any) -> Message:
        if self._is_away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, NO_LEADER)
        return await self._serve(request, context)

    async def _serve(self, request: Message, context: Any) -> Message:
        self._advance()
        try:
            return self.model.serve(request)
        except Refused as refused:
            await context.abort(refused.code, refused.details)
            raise AssertionError("abort raises") from refused
        finally:
            self._expect()

    async def _keep_alive(self, _requests: object, context: Any) -> None:
        while isinstance(request := await context.read(), pb.LeaseKeepAliveRequest):
            if self._is_away:
                await context.abort(grpc.StatusCode.UNAVAILABLE, NO_LEADER)
            await context.write(await self._serve(request, context))

    async def _watch(self, _requests: object, context: Any) -> None:
        responses: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()
        session = self.model.watch(responses.put_nowait)
        work = asyncio.ensure_future(_both(session.receive, responses, context))
        self._watching[work] = None
        try:
            if self._is_away:
                work.cancel()
            await asyncio.wait((work,))
        finally:
            work.cancel()
            session.close()
            del self._watching[work]
        if work.cancelled():
            await context.abort(grpc.StatusCode.UNAVAILABLE, NO_LEADER)


async def _both(
    receive: Callable[[pb.WatchRequest], None], responses: asyncio.Queue[pb.WatchResponse], context: Any
) -> None:
    """Reads requests, and writes responses, until the client closes its side."""
    writer = asyncio.ensure_future(_write(responses, context))
    try:
        while isinstance(request := await context.read(), pb.WatchRequest):
            receive(request)
    finally:
        writer.cancel()


async def _write(responses: asyncio.Queue[pb.WatchResponse], context: Any) -> None:
    while True:
        await context.write(await responses.get())


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()
