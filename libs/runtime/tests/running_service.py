"""The service of echo_service.py as a process, for tests of what `run_service` does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from kafscale.storage.keys import Keyspace

SERVICE = Path(__file__).with_name("echo_service.py")
WAIT_S = 60
"""Most of a process start is importing, which a busy machine makes ten times as long."""


class Running:
    """A service process and what it has logged."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[dict[str, object]] = []
        self._reader = asyncio.get_running_loop().create_task(self._read())
        self._news = asyncio.Event()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            with contextlib.suppress(json.JSONDecodeError):
                self.lines.append(json.loads(line))
            self._news.set()
        self._news.set()

    async def logged(self, event: str) -> dict[str, object]:
        async with asyncio.timeout(WAIT_S):
            while True:
                for line in self.lines:
                    if line["event"] == event:
                        return line
                assert not self._reader.done(), f"ended without {event!r}: {self.lines}"
                self._news.clear()
                await self._news.wait()

    async def http(self, path: str) -> tuple[int, str]:
        address = (await self.logged("http server started"))["http"]
        return await asyncio.to_thread(fetch, f"http://{address}{path}")

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            code = await self.process.wait()
            await self._reader
            return code


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@asynccontextmanager
async def service(settings: Mapping[str, str], *flags: str) -> AsyncIterator[Running]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFSCALE_")}
    process = await asyncio.create_subprocess_exec(
        # Tests that a shell runs in the background inherit SIGINT as ignored, and so would the service.
        *("env", "--default-signal=INT"),
        *(sys.executable, str(SERVICE), *flags),
        env={**environment, **settings},
        stderr=PIPE,
    )
    running = Running(process)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await running.ended()


def settings_for(endpoint: str, keyspace: Keyspace, **more: str) -> dict[str, str]:
    return {
        "KAFSCALE_ETCD_ENDPOINTS": endpoint,
        "KAFSCALE_NAMESPACE": keyspace.namespace,
        "KAFSCALE_USE_MEMORY_S3": "1",
        **{f"KAFSCALE_{name}": value for name, value in more.items()},
    }
