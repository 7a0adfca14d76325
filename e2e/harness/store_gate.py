"""Stands in front of an S3 server and reports each request to `show`; holds, doubles or refuses some.

A held request arrives late, whether or not its sender still waits: the gate reads all of it before it holds it. So a
PUT may arrive after the sender has sent it again or has given it up, and a DELETE after somebody has looked. A doubled
one arrives twice; its sender hears of the first. A refused one never arrives: its answer is 503 Slow Down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Self

HEADERS_MAX: Final = 64 << 10
CHUNK: Final = 256 << 10
ANSWER_S: Final = 60.0
START_S: Final = 10.0
REFUSAL: Final = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 80\r\n\r\n"
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>slow</Message></Error>'
)
HELD_METHODS: Final = (b"PUT", b"DELETE", b"POST")
"""POST: the DELETE of many objects."""


class StoreGate:
    """`with StoreGate("127.0.0.1", port, seed) as gate:` then connect to `gate.endpoint`.

    `share` of the requests that write or delete are held for a random time up to `hold_max_s`, and `double_share` of
    them arrive twice. `refuse_share` of all requests are refused. These may change at any time. `show` is called with
    each request, its headers and its body, in the gate's thread.
    """

    def __init__(
        self, host: str, port: int, seed: int, show: Callable[[bytes], None] = lambda _request: None
    ) -> None:
        self._target = (host, port)
        self._show = show
        self._chance = random.Random(seed)
        self._thread = threading.Thread(target=self._run, name="store gate", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._port = 0
        self.share = 0.0
        self.hold_max_s = 0.0
        self.double_share = 0.0
        self.refuse_share = 0.0
        self.doubled = 0
        self.refused = 0
        self.held: Counter[str] = Counter()
        """By method."""
        self.holding = 0
        """Now."""
        self.late = 0
        """Those whose sender had gone when they were passed on."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(START_S), "the gate does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEADERS_MAX)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._listening.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Each request is read whole, so its answer is the only thing under way."""
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._target)
        except ConnectionError:  # the server is down
            writer.close()
            return
        back = asyncio.create_task(_copy(to_reader, writer))
        try:
            while (request := await _read_request(reader)) is not None:
                if self._chance.random() < self.refuse_share:
                    self.refused += 1
                    writer.write(REFUSAL)
                else:
                    await self._pass_on(request, to_writer, reader, back)
        except ConnectionError:  # as the sender finds out
            return
        finally:
            back.cancel()
            to_writer.close()
            writer.close()

    async def _pass_on(
        self,
        request: bytes,
        to_writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
        back: asyncio.Task[int],
    ) -> None:
        self._show(request)
        method = request.partition(b" ")[0]
        holds = method in HELD_METHODS and self._chance.random() < self.share
        if holds:
            self.held[method.decode()] += 1
            self.holding += 1
            await asyncio.sleep(self._chance.uniform(0, self.hold_max_s))
            self.holding -= 1
        to_writer.write(request)
        await to_writer.drain()
        if method in HELD_METHODS and self._chance.random() < self.double_share:
            self.doubled += 1
            await self._send_again(request)
        if holds and reader.at_eof():
            self.late += 1
            await asyncio.wait({back}, timeout=ANSWER_S)  # the server drops a request whose connection ends

    async def _send_again(self, request: bytes) -> None:
        """On a connection of its own; nobody hears the answer."""
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            writer.write(request)
            await writer.drain()
            await asyncio.wait({asyncio.ensure_future(reader.read(1))}, timeout=ANSWER_S)
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> bytes | None:
    """Headers and body; None: the client has closed the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    return head + await reader.readexactly(int(_headers(head).get(b"content-length", b"0")))


def _headers(head: bytes) -> Mapping[bytes, bytes]:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return {name.lower(): value.strip() for name, _, value in lines}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """Answers, until the server ends the connection. A sender that has gone hears nothing."""
    size = 0
    while data := await reader.read(CHUNK):
        size += len(data)
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
    return size
