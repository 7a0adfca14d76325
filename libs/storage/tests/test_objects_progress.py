"""Time limits by progress: what moves is not cut off, what rests is, and an end follows from the size."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kafscale.storage.objects import StoreSlow, StoreUnavailable
from kafscale.storage.objects.progress import (
    SLOWEST_BYTES_PER_S,
    TooSlow,
    time_limit_s,
    unacknowledged,
    while_moving,
)
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.clock import run_in_virtual_time

from .s3_stub import Stub

STALL_S = 10.0


async def _moving_for(moves_s: float, works_s: float, size: int) -> float:
    """A request that moves a byte each second for `moves_s` and ends after `works_s`; the time that it took."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()

    def moved() -> int:
        return int(min(loop.time() - begun_s, moves_s))

    try:
        async with while_moving(moved, size=size, stall_s=STALL_S):
            await asyncio.sleep(works_s)
    except TooSlow:
        return -(loop.time() - begun_s)
    return loop.time() - begun_s


def test_a_request_whose_bytes_move_may_take_many_times_the_limit() -> None:
    size = 100 * SLOWEST_BYTES_PER_S
    assert run_in_virtual_time(_moving_for(95, 100, size)) == pytest.approx(100)


def test_a_request_fails_when_no_byte_moved_for_the_limit() -> None:
    async def stalled() -> float:
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError, match="no byte moved"):
            await _moving_for(30, 1_000, 100 * SLOWEST_BYTES_PER_S)
        return asyncio.get_running_loop().time() - begun_s

    took_s = run_in_virtual_time(stalled())
    assert 30 + STALL_S <= took_s <= 30 + STALL_S * 1.25, "seen at the next look"


def test_the_end_follows_from_the_size_however_much_moves() -> None:
    size = 50 * SLOWEST_BYTES_PER_S
    assert time_limit_s(size, STALL_S) == 50 + STALL_S
    assert run_in_virtual_time(_moving_for(10_000, 10_000, size)) == pytest.approx(-(50 + STALL_S))


def test_a_timeout_of_the_request_itself_passes_unchanged() -> None:
    async def work() -> None:
        async with while_moving(lambda: 0, size=1, stall_s=STALL_S):
            raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run_in_virtual_time(work())


async def test_bytes_in_the_kernel_are_not_sent_yet() -> None:
    """A socket takes megabytes at once; only what the other host took counts."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, *listener.getsockname()
    )
    server, _ = listener.accept()
    server.setblocking(False)
    size = 8 << 20
    transport.write(bytes(size))
    assert 0 < size - unacknowledged(transport) < size, "the receiver's buffer is full, and no more"
    assert unacknowledged(transport) > transport.get_write_buffer_size(), "the kernel holds some of it"
    taken = 0
    while taken < size:
        taken += len(await asyncio.get_running_loop().sock_recv(server, 1 << 20))
    async with asyncio.timeout(10):
        while unacknowledged(transport):
            await asyncio.sleep(0)
    transport.close()
    server.close()
    listener.close()


class SlowReader:
    """A server that takes a PUT in small pieces with pauses, and answers at its end; or takes `bytes_max` of it."""

    def __init__(self, bytes_per_piece: int, *, bytes_max: int = 1 << 40) -> None:
        self._piece = bytes_per_piece
        self._bytes_max = bytes_max
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its endpoint."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=1 << 16)
        for listener in server.sockets:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        try:
            yield "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._take(reader, writer)
        finally:
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        left = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        while left and self._bytes_max > 0:
            got = len(await reader.read(min(self._piece, left)))
            if not got:
                break
            left -= got
            self._bytes_max -= got
            await asyncio.sleep(0.02)
        if not left:
            writer.write(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')
            await writer.drain()
        await asyncio.Event().wait()


async def _put(reader: SlowReader, stub: Stub, stall_s: float) -> str:
    async with reader.serving() as stub.endpoint:
        store = S3Store(stub.config(request_timeout_s=stall_s))
        try:
            return await store.put("ns/k", [bytes(4 << 20)])
        finally:
            await store.close()


async def test_a_put_of_s3_that_moves_slowly_arrives() -> None:
    """4 MiB in pieces of 32 KiB with pauses: several times the limit for a stall."""
    assert await _put(SlowReader(32 << 10), Stub(), stall_s=1.0) == "e"


async def test_a_put_of_s3_that_rests_is_given_up_and_is_not_called_slow() -> None:
    with pytest.raises(StoreUnavailable, match="no byte moved") as given_up:
        await _put(SlowReader(32 << 10, bytes_max=1 << 20), Stub(), stall_s=0.5)
    assert not isinstance(given_up.value, StoreSlow)


async def test_a_put_of_s3_that_moves_until_its_end_is_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.storage.objects.progress.SLOWEST_BYTES_PER_S", 32 << 20)
    with pytest.raises(StoreSlow):
        await _put(SlowReader(2 << 10), Stub(), stall_s=1.0)
