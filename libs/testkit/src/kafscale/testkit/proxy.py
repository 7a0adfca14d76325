"""A TCP proxy that misbehaves on demand: silence, resets, lost answers, a thin pipe.

"Up" is from client to server, "down" the way back. Silence holds bytes back and delivers them when it
ends, as a network does after a time of packet loss. Swallowing loses bytes permanently, so a
connection that lost some is reset when the proxy heals. All connections share the rate of a thin pipe, and little is
buffered in front of it. Everything counts, so that tests can wait
for what happened instead of sleeping.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

CHUNK_BYTES = 64 << 10
QUEUED_CHUNKS_MAX = 64
"""Chunks between reading and writing, per direction: 4 MiB in flight on a silent line."""
THIN_CHUNK_BYTES = 16 << 10
THIN_QUEUED_CHUNKS_MAX = 2
THIN_BURST_S = 0.25
"""What a thin pipe catches up with after this process was late; without it a busy machine makes the pipe thinner."""
THIN_SOCKET_BYTES = 256 << 10


class Way(Enum):
    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class Line:
    """The state of one direction, for all connections."""

    silent: bool = False
    swallow: bool = False
    passed_bytes: int = 0
    swallowed_bytes: int = 0
    bytes_per_s: float | None = None
    free_at_s: float = 0.0  # when a thin pipe has carried what it took


@dataclass(eq=False, slots=True)
class _Link:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    has_hole: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def writer(self, way: Way) -> asyncio.StreamWriter:
        return self.server if way is Way.UP else self.client


class FaultProxy:
    """`async with FaultProxy("127.0.0.1", port) as proxy:` then connect to `proxy.port`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.up = Line()
        self.down = Line()
        self.refusing = False
        self.accepted = 0
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def open_links(self) -> int:
        return len(self._links)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- faults ----------------------------------------------------------------------------------

    def silence(self, *ways: Way) -> None:
        """No bytes pass in these directions (default: both) until `heal`, without an error."""
        for way in ways or (Way.UP, Way.DOWN):
            self.line(way).silent = True

    def lose_answers(self) -> None:
        """Requests reach the server, but its answers are lost."""
        self.down.swallow = True

    def refuse(self) -> None:
        """New connections are reset at once."""
        self.refusing = True

    def thin(self, bytes_per_s: float, *ways: Way) -> None:
        """Connections accepted from now on share this rate in each of these directions (default: up) until `heal`."""
        assert self._server is not None
        for way in ways or (Way.UP,):
            self.line(way).bytes_per_s = bytes_per_s
        for listener in self._server.sockets:  # its connections inherit the size
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, THIN_SOCKET_BYTES)

    def reset_all(self) -> None:
        """Sends RST to both sides of every open connection."""
        for link in tuple(self._links):
            self._reset(link)

    def heal(self) -> None:
        """Ends all faults. Connections that lost bytes are reset."""
        for line in (self.up, self.down):
            line.silent = line.swallow = False
            line.bytes_per_s = None
        self.refusing = False
        for link in tuple(self._links):
            if link.has_hole:
                self._reset(link)
        self._notify()

    # -- what happened ---------------------------------------------------------------------------

    def line(self, way: Way) -> Line:
        return self.up if way is Way.UP else self.down

    async def until(self, happened: Callable[[Self], bool], timeout_s: float = 10.0) -> None:
        """Waits until `happened(proxy)`, which is called whenever bytes pass or connections change."""
        async with asyncio.timeout(timeout_s):
            while not happened(self):
                self._changed.clear()
                await self._changed.wait()

    # --------------------------------------------------------------------------------------------

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._notify()
        if self.refusing:
            _reset_socket(writer)
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset_socket(writer)
            return
        link = _Link(writer, server_writer)
        self._links.add(link)
        self._notify()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(link, Way.UP, reader))
                group.create_task(self._pump(link, Way.DOWN, server_reader))
        except* OSError:
            self._reset(link)  # one side broke: the other learns of it the same way
        finally:
            self._links.discard(link)
            self._notify()
            writer.close()
            server_writer.close()

    async def _pump(self, link: _Link, way: Way, reader: asyncio.StreamReader) -> None:
        """Reads while the line is silent, so that a reset passes."""
        is_thin = self.line(way).bytes_per_s is not None
        queue: asyncio.Queue[bytes] = asyncio.Queue(THIN_QUEUED_CHUNKS_MAX if is_thin else QUEUED_CHUNKS_MAX)
        size = THIN_CHUNK_BYTES if is_thin else CHUNK_BYTES
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write(link, way, queue))
            chunk = b"first"
            while chunk:
                chunk = await reader.read(size)
                await queue.put(chunk)

    async def _write(self, link: _Link, way: Way, queue: asyncio.Queue[bytes]) -> None:
        line, writer = self.line(way), link.writer(way)
        while True:
            chunk = await queue.get()
            await self._heard(line)
            await self._carried(line, len(chunk))
            if line.swallow:
                link.has_hole = True
                line.swallowed_bytes += len(chunk)
                self._notify()
            elif chunk:
                writer.write(chunk)
                await writer.drain()
                line.passed_bytes += len(chunk)
                self._notify()
            if not chunk:
                if writer.can_write_eof() and not writer.is_closing():
                    writer.write_eof()
                return

    async def _heard(self, line: Line) -> None:
        while line.silent:
            self._changed.clear()
            await self._changed.wait()

    async def _carried(self, line: Line, size: int) -> None:
        """Each connection has one chunk in the pipe, in the order of asking: so the rate is shared fairly."""
        if line.bytes_per_s is not None:
            now_s = asyncio.get_running_loop().time()
            line.free_at_s = max(line.free_at_s, now_s - THIN_BURST_S) + size / line.bytes_per_s
            await asyncio.sleep(max(0.0, line.free_at_s - now_s))

    def _reset(self, link: _Link) -> None:
        _reset_socket(link.client)
        _reset_socket(link.server)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()


def _reset_socket(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and not writer.is_closing():
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
