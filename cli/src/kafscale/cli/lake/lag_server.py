"""`kafscale lag --serve`: the page of the lag report on a loopback port, always with a recent report.

A report is made when somebody asks and the last one is old, one at a time, so nobody's reading costs more than one
report per interval, and a page that nobody looks at costs nothing. A request never waits longer than PATIENCE_S: after
that it gets the last report, and the page asks again. If etcd or the store does not answer, the page says so and keeps
the last report.

Law: only a program on this machine reads the page. The port is on loopback, and a request whose Host is another name is
refused. Otherwise a web site could point its name at 127.0.0.1 and read the page through a visitor's browser (DNS
rebinding).
"""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from kafscale.lake.lag.checkpoints import NoCheckpoint
from kafscale.lake.lag.page import encoded, payload, render
from kafscale.lake.lag.report import Facts, Report, make_report
from kafscale.lake.unknown import UnknownGroup
from kafscale.operations.sentences import Trouble
from kafscale.runtime.http import PLAIN, Answer, HttpServer, header, request_line, response, serving
from kafscale.storage.etcd.client import EtcdError, EtcdUnknown
from kafscale.storage.objects import StoreError

HOST: Final = "127.0.0.1"
NAMES: Final = (HOST, "localhost")
PATIENCE_S: Final = 3.0
REPORT_TIMEOUT_S: Final = 120.0
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
HEADERS: Final = (
    "Cache-Control: no-store",
    "Content-Security-Policy: frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
)

ReadFacts = Callable[[], Awaitable[Facts]]


class LiveReport:
    """The newest report, made again when it is older than `every_s` and somebody asks. `trouble`: why the last attempt
    failed, None if it did not."""

    def __init__(self, read: ReadFacts, first: Report, every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._report = first
        self._made_s = asyncio.get_running_loop().time()
        self._stale, self._fresh = asyncio.Event(), asyncio.Event()
        self._fresh.set()
        self.trouble: str | None = None

    async def newest(self) -> Report:
        if self._fresh.is_set() and asyncio.get_running_loop().time() - self._made_s >= self._every_s:
            self._fresh.clear()
            self._stale.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._fresh.wait()
        return self._report

    async def run(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            await self._make()
            self._made_s = asyncio.get_running_loop().time()
            self._fresh.set()

    async def _make(self) -> None:
        try:
            self._report = await made(self._read)
            self.trouble = None
        except EtcdUnknown as away:
            self.trouble = f"etcd does not answer: {away.detail}"
        except (EtcdError, StoreError, UnknownGroup, NoCheckpoint, TimeoutError) as trouble:
            self.trouble = str(trouble)


async def made(read: ReadFacts) -> Report:
    """Raises TimeoutError with a sentence, and what `read` raises."""
    try:
        async with asyncio.timeout(REPORT_TIMEOUT_S):
            facts = await read()
    except TimeoutError:
        raise TimeoutError(f"etcd and the store did not answer within {REPORT_TIMEOUT_S:.0f} s") from None
    return await asyncio.to_thread(make_report, facts)


class LagServer(HttpServer):
    """`/` is the page, `/data.json` what it shows."""

    def __init__(self, live: LiveReport, every_s: int) -> None:
        super().__init__()
        self._live = live
        self._every_s = every_s

    async def respond(self, head: bytes) -> bytes:
        return response(head, await self._answer(head), HEADERS)

    async def _answer(self, head: bytes) -> Answer:
        method, path = request_line(head)
        host = header(head, "host") or ""
        if (host.rpartition(":")[0] or host) not in NAMES:
            return HTTPStatus.FORBIDDEN, PLAIN, f"this page is at http://{HOST} and nowhere else\n".encode()
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, b"GET only\n"
        match path.partition("?")[0]:
            case "/":
                page = await asyncio.to_thread(render, await self._live.newest(), self._every_s)
                return HTTPStatus.OK, HTML, page.encode()
            case "/data.json":
                found = await asyncio.to_thread(payload, await self._live.newest())
                found |= {"live": self._every_s, "trouble": self._live.trouble}
                return HTTPStatus.OK, JSON, encoded(found).encode()
            case _:
                return HTTPStatus.NOT_FOUND, PLAIN, b"/ or /data.json\n"


async def serve_report(read: ReadFacts, port: int, every_s: int, announce: Callable[[str], None]) -> None:
    """Until SIGINT or SIGTERM. Raises Trouble if it cannot listen, and what `read` raises the first time."""
    try:
        live = LiveReport(read, await made(read), every_s)
    except TimeoutError as trouble:
        raise Trouble(str(trouble)) from trouble
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with (
            serving(LagServer(live, every_s), f"{HOST}:{port}") as address,
            asyncio.TaskGroup() as tasks,
        ):
            running = tasks.create_task(live.run())
            announce(f"http://{address}/")
            await stop.wait()
            running.cancel()
    except OSError as taken:
        if taken.errno != errno.EADDRINUSE:
            raise Trouble(f"cannot listen on {HOST}:{port}: {taken.strerror}") from taken
        raise Trouble(
            f"port {port} is in use by another program; choose another: --port {port + 1}"
        ) from taken
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
