"""Asks the front door that was named, or the one that a group belongs to, and waits out what passes by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from kafscale.cli.kafka.connection import Api, BadAnswer, Connection
from kafscale.cli.kafka.errors import KafkaTrouble, refusal
from kafscale.runtime.addresses import join_address, split_address
from kafscale.storage.backoff import Backoff
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import find_coordinator, metadata

PATIENCE_S: Final = 20.0
"""For errors that pass: a slot that is being read, a partition without an owner yet."""
METADATA_V: Final = 12
FIND_COORDINATOR_V: Final = 4
_GROUP: Final = 0
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

Q = TypeVar("Q")
A = TypeVar("A")
Address = tuple[str, int]


class Client:
    """Connections are kept until `close`. Every method raises KafkaTrouble."""

    def __init__(self, bootstrap: Connection, address: Address) -> None:
        self._bootstrap = address
        self._connections: dict[Address, Connection] = {address: bootstrap}

    async def ask(self, api: Api[Q, A], request: Q, version: int, *, at: Address | None = None) -> A:
        address = at or self._bootstrap
        try:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = await Connection.open(*address)
            return await connection.ask(api, request, version)
        except (OSError, EOFError, TimeoutError, BadAnswer) as error:
            raise unreachable(address, error) from error

    async def metadata(self, topics: Iterable[str] | None) -> metadata.MetadataResponse:
        """Of the named topics, or of all; none is created by the asking."""
        named = None if topics is None else [metadata.MetadataRequestTopic(name=name) for name in topics]
        request = metadata.MetadataRequest(topics=named, allow_auto_topic_creation=False)
        return await self.ask(metadata, request, METADATA_V)

    async def coordinator(self, group: str) -> Address:
        request = find_coordinator.FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group])

        async def find() -> Address:
            answer = await self.ask(find_coordinator, request, FIND_COORDINATOR_V)
            (found,) = answer.coordinators
            check(f"the coordinator of group '{group}'", found.error_code, found.error_message)
            return found.host, found.port

        return await patiently(find)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


class Passing(KafkaTrouble):
    """Trouble that may be over at the next try."""


def check(what: str, code: int, message: str | None = None) -> None:
    """Raises for an error code that is one."""
    if code == ErrorCode.NONE:
        return
    trouble = refusal(what, code, message)
    raise Passing(str(trouble)) if code in _PASSING else trouble


async def patiently(ask: Callable[[], Awaitable[A]], *, patience_s: float = PATIENCE_S) -> A:
    """Asks again while the trouble is of the passing kind, for a while."""
    backoff = Backoff(first_ms=100, cap_ms=2_000)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        try:
            return await ask()
        except Passing:
            wait_s = backoff.next_s()
            if loop.time() + wait_s > deadline:
                raise
            await asyncio.sleep(wait_s)


def unreachable(address: Address, error: Exception) -> KafkaTrouble:
    where = join_address(*address)
    match error:
        case TimeoutError():
            why = "no answer in time"
        case EOFError():
            why = "it closed the connection"
        case BadAnswer():
            return KafkaTrouble(
                f"what listens at {where} is no Kafka server ({error}); name a front door with --bootstrap-server"
            )
        case OSError(errno=int(number)):
            why = os.strerror(number)
        case _:
            why = str(error)
    return KafkaTrouble(
        f"no Kafka server answers at {where} ({why}); "
        "start one with `kafscale up`, or name another with --bootstrap-server"
    )


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Client]:
    """To the first of the comma-separated addresses that takes the connection. Raises KafkaTrouble."""
    try:
        addresses = [split_address(each.strip()) for each in bootstrap.split(",")]
    except ValueError as wrong:
        raise KafkaTrouble(f"--bootstrap-server: {wrong}") from wrong
    client = await _first(addresses)
    try:
        yield client
    finally:
        client.close()


async def _first(addresses: list[Address]) -> Client:
    for number, address in enumerate(addresses, start=1):
        try:
            return Client(await Connection.open(*address), address)
        except (OSError, TimeoutError) as error:
            if number == len(addresses):
                raise unreachable(address, error) from error
    raise AssertionError("an address at least")
