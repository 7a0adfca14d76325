"""A headless Chromium for tests of pages, driven over a pipe by the DevTools protocol.

The browser gets a new profile and ends with the test. Log entries, exceptions and network requests of the page are
recorded, so that a test can assert that there were none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
CALL_S: Final = 300.0
POLL_MS: Final = 20
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str:
    """Without Chromium, skips the test, or fails it if CI is set."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium. On Debian: apt-get install chromium-headless-shell")
        pytest.skip("no Chromium")
    return found


@dataclass(slots=True)
class Seen:
    """The page's errors, and its network requests."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Page:
    """One tab. Every call has a deadline."""

    def __init__(self, into: asyncio.StreamWriter, out: asyncio.StreamReader) -> None:
        self._into = into
        self._out = out
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self._session: str | None = None
        self._loaded = asyncio.Event()
        self.seen = Seen()

    async def read(self) -> None:
        """Messages end with a zero byte; a message without an id is an event. Returns when the browser has ended."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                message = json.loads((await self._out.readuntil(b"\0"))[:-1])
                call = self._calls.pop(message.get("id", -1), None)
                if call is None:
                    self._event(message.get("method", ""), message.get("params", {}))
                elif not call.done():
                    call.set_result(message)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._calls[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._into.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(CALL_S):
            answer = await self._calls[number]
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def attach(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        session = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = session["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(CALL_S):
            await self._loaded.wait()

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression. If it throws, the test fails."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, condition: str) -> None:
        """Waits until a JavaScript expression is true. Raises TimeoutError."""
        again = f"const look = () => {condition} ? done() : setTimeout(look, {POLL_MS}); look();"
        await self.ask(f"new Promise((done) => {{ {again} }})")

    def _event(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.consoleAPICalled":
                self.seen.messages.append(json.dumps(params["args"]))
            case "Runtime.exceptionThrown":
                self.seen.messages.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.seen.messages.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.seen.requests.append(params["request"]["url"])


@contextlib.contextmanager
def _pipes() -> Iterator[tuple[int, int, int, int]]:
    """The browser reads descriptor 3 and writes descriptor 4."""
    browser_reads, we_write = os.pipe()
    we_read, browser_writes = os.pipe()
    try:
        yield browser_reads, we_write, we_read, browser_writes
    finally:
        for end in (browser_reads, browser_writes):
            with contextlib.suppress(OSError):
                os.close(end)


@asynccontextmanager
async def browser_page(profile: Path) -> AsyncIterator[Page]:
    """The caller removes the folder `profile`, because processes of the browser write there after it was killed."""
    binary = find_chromium()
    loop = asyncio.get_running_loop()
    with _pipes() as (browser_reads, we_write, we_read, browser_writes):
        script = f'exec "$0" "$@" 3<&{browser_reads} 4>&{browser_writes}'
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", script, binary, *_FLAGS, f"--user-data-dir={profile}"),
            pass_fds=(browser_reads, browser_writes),
            stderr=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
    out = asyncio.StreamReader(limit=64 << 20)
    reader, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(out), os.fdopen(we_read, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(we_write, "wb", 0)
    )
    page = Page(asyncio.StreamWriter(transport, protocol, None, loop), out)
    reading = asyncio.create_task(page.read())
    try:
        await page.attach()
        yield page
    finally:
        process.kill()
        await process.wait()
        reading.cancel()
        transport.close()
        reader.close()
