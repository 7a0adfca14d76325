"""A server of `grpc.aio` in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import grpc
import grpc.aio
from kafscale.testkit.memory_grpc.network import Connection, Network
from kafscale.testkit.memory_grpc.rpc import Context, Metadata


def open_server(network: Network, node: str) -> grpc.aio.Server:
    return cast(grpc.aio.Server, MemoryServer(network, node))


@dataclass(frozen=True, slots=True)
class _Details:
    method: str
    invocation_metadata: Metadata


class MemoryServer:
    def __init__(self, network: Network, node: str) -> None:
        self.network, self.node = network, node
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._addresses: list[str] = []
        self._contexts: dict[Connection, dict[Context, None]] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, _service: str, _handlers: Any) -> None:
        """Generated code names its methods a second time; the generic handlers find them all."""

    def add_insecure_port(self, address: str) -> int:
        """Raises RuntimeError if the address is taken."""
        host, _, port = address.rpartition(":")
        number = int(port) or self.network.free_port()
        bound = f"{host}:{number}"
        if bound in self.network.servers:
            raise RuntimeError(f"Failed to bind to address {bound}")
        self._addresses.append(bound)
        return number

    async def start(self) -> None:
        for address in self._addresses:
            self.network.servers[address] = self

    async def stop(self, grace: float | None) -> None:
        for address in self._addresses:
            self.network.servers.pop(address, None)
        running = [each.task for each in self._all() if each.task is not None]
        if running:
            await asyncio.wait(running, timeout=grace or 0)
        for context in self._all():
            context.cancel()
        for connection in tuple(self._contexts):
            connection.end_by(self.node, "the server was stopped")

    def _all(self) -> list[Context]:
        return [context for contexts in self._contexts.values() for context in contexts]

    def accept(self, connection: Connection) -> None:
        self._contexts[connection] = {}
        connection.on_broken[self.node] = lambda _: self._broken(connection)

    def begin(self, connection: Connection, context: Context, method: str) -> None:
        """A call has arrived."""
        serving = context.serve(self._handler(method, context))
        context.task = task = asyncio.get_running_loop().create_task(serving)
        contexts = self._contexts[connection]
        contexts[context] = None
        task.add_done_callback(lambda _: contexts.pop(context, None))

    def _handler(self, method: str, context: Context) -> Any:
        details: Any = _Details(method, context.invocation_metadata())
        for each in self._handlers:
            found = each.service(details)
            if found is not None:
                return found
        return grpc.unary_unary_rpc_method_handler(_unimplemented)

    def _broken(self, connection: Connection) -> None:
        for context in self._contexts.pop(connection, ()):
            context.cancel()


async def _unimplemented(_request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
