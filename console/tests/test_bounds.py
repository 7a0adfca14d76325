"""The bounds of what browsers can make the console hold, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from kafscale.access.protocol import SecurityProtocol
from kafscale.client.security import OPEN, ClientSecurity
from kafscale.console import connections, server, table
from kafscale.console.answers import Row
from kafscale.console.connections import CONNECTIONS_MAX
from kafscale.console.logins import Entrance, Login, Logins
from kafscale.console.rights import Admits
from kafscale.console.routes import API, Call, Route
from kafscale.console.server import CALLS_IN_PROGRESS_MAX, CALLS_MAX, HEAD_BYTES_MAX, serving
from kafscale.console.settings import ConsoleSettings
from kafscale.runtime.ports import free_port

DEADLINE_S = 30.0
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Held:
    """A route whose answers wait for `end`; `begun` counts them."""

    def __init__(self) -> None:
        self.begun, self.end = asyncio.Semaphore(0), asyncio.Event()

    async def answer(self, _: Call) -> Row:
        self.begun.release()
        await self.end.wait()
        return {}


@asynccontextmanager
async def console(
    monkeypatch: pytest.MonkeyPatch, security: ClientSecurity = OPEN, **more: Any
) -> AsyncIterator[tuple[str, Held]]:
    """Its address, and a route /held."""
    held = Held()
    row = Route(method="GET", path="/held", handler=held.answer, needs=Admits.LOGIN)
    monkeypatch.setattr(table, "ROUTES", (*table.ROUTES, row))
    settings = ConsoleSettings(port=0, **more)
    async with asyncio.timeout(DEADLINE_S), serving(Entrance("127.0.0.1:1", security), settings) as url:
        yield url, held
        held.end.set()


async def opened(url: str) -> Stream:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


def head(url: str, path: str = f"{API}/me", more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\n{more}\r\n".encode()


async def status(stream: Stream) -> int:
    """0: closed without an answer."""
    with suppress(ConnectionError):
        line = await stream[0].readline()
        return int(line.split()[1]) if line else 0
    return 0


async def test_a_connection_beyond_the_bound_is_closed_until_another_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with console(monkeypatch) as (url, _), AsyncExitStack() as stack:
        streams = [await opened(url) for _ in range(CONNECTIONS_MAX)]
        for reader, writer in streams:
            stack.callback(writer.close)
            writer.write(head(url))
            assert await status((reader, writer)) == 200  # it is accepted, and stays
        beyond = await opened(url)
        beyond[1].write(head(url))
        assert await status(beyond) == 0
        beyond[1].close()
        streams[0][1].close()
        while True:  # until the console has seen the end of the first
            last = await opened(url)
            stack.callback(last[1].close)
            last[1].write(head(url))
            if await status(last) == 200:
                break


async def test_half_a_head_is_closed_in_time_and_a_long_answer_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    async with console(monkeypatch) as (url, held):
        long = await opened(url)
        long[1].write(head(url, f"{API}/held"))
        await held.begun.acquire()
        half = await opened(url)
        half[1].write(head(url)[:-4])
        assert await status(half) == 0
        silent = await opened(url)
        assert await status(silent) == 0
        held.end.set()
        assert await status(long) == 200
        for _, writer in (long, half, silent):
            writer.close()


async def test_a_header_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(monkeypatch) as (url, _):
        for size, refused in ((HEAD_BYTES_MAX - 100, False), (HEAD_BYTES_MAX + 1, True)):
            stream = await opened(url)
            stream[1].write(head(url, more=f"Cookie: a={'x' * size}\r\n"))
            assert (await status(stream) == 400) is refused
            stream[1].close()


@pytest.mark.parametrize(("of_one", "bound"), [(CALLS_MAX, CALLS_MAX), (1_000, CALLS_IN_PROGRESS_MAX)])
async def test_requests_in_progress_are_bounded_of_one_login_and_of_all(
    monkeypatch: pytest.MonkeyPatch, of_one: int, bound: int
) -> None:
    monkeypatch.setattr(server, "CALLS_MAX", of_one)
    async with console(monkeypatch) as (url, held), aiohttp.ClientSession(url) as session:
        asked = [asyncio.ensure_future(session.get(f"{API}/held")) for _ in range(bound)]
        for _ in asked:
            await held.begun.acquire()
        async with session.get(f"{API}/held") as answer:
            assert answer.status == 429
        held.end.set()
        assert {(await each).status for each in asked} == {200}
        async with session.get(f"{API}/held") as answer:
            assert answer.status == 200


async def test_those_without_a_login_leave_room_for_those_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    security = replace(OPEN, protocol=SecurityProtocol.SASL_PLAINTEXT)
    alice = Login(Entrance("127.0.0.1:1", security), "alice", None)
    monkeypatch.setattr(Logins, "of", lambda _, session_id: alice if session_id == "alice" else None)
    async with console(monkeypatch, security) as (url, held), AsyncExitStack() as stack:
        change = f"Origin: {url}\r\nX-KafScale-Console: 1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        unending = head(url, f"{API}/login", change).replace(b"GET", b"POST")
        refused = False
        while not refused:  # one of them is, because those before it have the room
            stream = await opened(url)
            stack.callback(stream[1].close)
            stream[1].write(unending)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    refused = await status(stream) == 429
        held.end.set()
        mine = await opened(url)
        stack.callback(mine[1].close)
        mine[1].write(head(url, f"{API}/held", "Cookie: kafscale-console=alice\r\n"))
        assert await status(mine) == 200


async def test_metrics_count_by_the_route_s_row_and_probes_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with console(monkeypatch, http_listen=address) as (url, held), aiohttp.ClientSession() as session:
        held.end.set()
        for path in (
            f"{API}/held",
            f"{API}/me",
            "/topics/secret-name",
            "/api/secret",
            f"{API}/none",
            "/assets/x",
        ):
            async with session.get(url + path):
                pass
        for probe in ("livez", "readyz"):
            async with session.get(f"http://{address}/{probe}") as answer:
                assert answer.status == 200
        async with session.get(f"http://{address}/metrics") as answer:
            text = await answer.text()
    counted = {line for line in text.splitlines() if line.startswith("kafscale_console_requests_total")}
    assert counted == {
        'kafscale_console_requests_total{route="GET /held",status="200"} 1.0',
        'kafscale_console_requests_total{route="GET /me",status="200"} 1.0',
        'kafscale_console_requests_total{route="page",status="200"} 1.0',
        'kafscale_console_requests_total{route="page",status="404"} 3.0',
    }
    assert 'kafscale_console_request_seconds_count{route="GET /held"} 1.0' in text
    assert "kafscale_console_requests_in_progress 0.0" in text
    assert "kafscale_console_sessions 0.0" in text
    assert "secret" not in text


async def test_a_browser_that_leaves_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with console(monkeypatch, http_listen=address) as (url, held), aiohttp.ClientSession() as session:
        stream = await opened(url)
        stream[1].write(head(url, f"{API}/held"))
        await held.begun.acquire()
        stream[1].close()
        text = ""
        while 'route="GET /held",status="left"} 1.0' not in text:
            async with session.get(f"http://{address}/metrics") as answer:
                text = await answer.text()
