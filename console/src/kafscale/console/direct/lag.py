"""Asks the process that makes lag reports (`lag_process.py`), which runs only while somebody looks.

It begins at the first request and ends IDLE_S after the last one, or with the console: it ends when its input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson
from kafscale.console.answers import Problem
from kafscale.console.direct.questions import Row, target_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafscale.operations.target import Target

IDLE_S: Final = 300.0
PATIENCE_S: Final = 1.5
"""After that a page is shown without the report, and asks again."""
LATER_S: Final = 10.0
"""The same, once the process has made a report: it has an answer then, however slow the next reading is."""
STOP_TIMEOUT_S: Final = 2.0
LINE_BYTES_MAX: Final = 64 << 20
_ENDED: Final = "the process that reads etcd and the store ended; try again, and look at the console's log"

NONE_YET: Final[Row] = {
    "at_ms": None,
    "history_ms": None,
    "trouble": None,
    "making": False,
    "groups": [],
    "partitions": [],
    "history": None,
}


class LagReports:
    def __init__(self, target: Target) -> None:
        self._argument = orjson.dumps(target_to_json(target)).decode()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reported = False
        """Whether the process has made a report."""
        self._waiting: dict[int, asyncio.Future[Row]] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, groups: Iterable[str], topics: Iterable[str], group: str | None = None) -> Row:
        """The report of what a login sees (`lag_process.Reports`). `making`: a newer one is under way; if `at_ms` is
        None there is none yet. Raises Problem."""
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        future: asyncio.Future[Row] = loop.create_future()
        self._waiting[number] = future
        try:
            async with self._starting:
                into = await self._input()
                request = {"id": number, "groups": list(groups), "topics": list(topics), "group": group}
                into.write(orjson.dumps(request) + b"\n")
                await into.drain()
            async with asyncio.timeout(LATER_S if self._reported else PATIENCE_S):
                return await future
        except TimeoutError:
            return NONE_YET | {"making": True}
        except ConnectionError as ended:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", _ENDED) from ended
        finally:
            self._waiting.pop(number, None)
            self._wait_for_idle()

    def _wait_for_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_input)

    def _end_input(self) -> None:
        """The process ends then, and `_read` sees it."""
        if self._process is not None and self._process.stdin is not None and not self._waiting:
            self._process.stdin.close()
            self._process = None

    async def _input(self) -> asyncio.StreamWriter:
        if self._process is None:
            self._reported = False
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "kafscale.console.direct.lag_process",
                self._argument,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C is for the console, which ends it
            )
            self._reading = asyncio.create_task(self._read(self._process))
        assert self._process.stdin is not None
        return self._process.stdin

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Until the process ends. What waits then gets its last sentence."""
        assert process.stdout is not None
        why = _ENDED
        while line := await process.stdout.readline():
            found: Row = orjson.loads(line)
            if "id" not in found:
                why = found["trouble"]
                continue
            self._reported = self._reported or found["at_ms"] is not None
            if (future := self._waiting.get(found["id"])) is not None and not future.done():
                future.set_result(found)
        await process.wait()
        if self._process is process:
            self._process = None
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", why))

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process, reading = self._process, self._reading
        if process is None or reading is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.shield(reading)
        except TimeoutError:
            process.kill()
            await reading
