"""Asks the process that makes lag reports (`lag_process.py`), which runs only while somebody looks."""

from __future__ import annotations

import asyncio
import itertools
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson
from kafscale.console.answers import Problem
from kafscale.console.child import Child, Kept
from kafscale.console.direct.questions import Row, target_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafscale.operations.target import Target

MODULE: Final = "kafscale.console.direct.lag_process"
PATIENCE_S: Final = 1.5
"""After that a page is shown without the report, and asks again."""
LATER_S: Final = 10.0
"""The same, once the process has made a report: it has an answer then, however slow the next reading is."""
REPORT_BYTES_MAX: Final = 64 << 20
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
        first = orjson.dumps(target_to_json(target))
        self._kept = Kept(MODULE, REPORT_BYTES_MAX, quiet=False, first=first)
        self._of: Child | None = None
        """Whose answers `_reading` reads."""
        self._reading: asyncio.Task[None] | None = None
        self._reported = False
        """Whether the process has made a report."""
        self._waiting: dict[int, asyncio.Future[Row]] = {}
        self._numbers = itertools.count(1)

    async def ask(self, groups: Iterable[str], topics: Iterable[str], group: str | None = None) -> Row:
        """The report of what a login sees (`lag_process.Reports`). `making`: a newer one is under way; if `at_ms` is
        None there is none yet. Raises Problem."""
        number = next(self._numbers)
        future: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with self._kept.use() as child:
                if child is not self._of:
                    self._of, self._reading = child, asyncio.create_task(self._read(child))
                    self._reported = False
                request = {"id": number, "groups": list(groups), "topics": list(topics), "group": group}
                await child.send(orjson.dumps(request))
                async with asyncio.timeout(LATER_S if self._reported else PATIENCE_S):
                    return await future
        except TimeoutError:
            return NONE_YET | {"making": True}
        except OSError as ended:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", _ENDED) from ended
        finally:
            self._waiting.pop(number, None)

    async def _read(self, child: Child) -> None:
        """Until it ends. What waits then gets its last sentence."""
        why = _ENDED
        while (message := await child.receive()) is not None:
            found: Row = orjson.loads(message)
            if "id" not in found:
                why = found["trouble"]
                continue
            self._reported = self._reported or found["at_ms"] is not None
            if (future := self._waiting.get(found["id"])) is not None and not future.done():
                future.set_result(found)
        await child.gone()
        if self._of is child:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", why))

    async def close(self) -> None:
        self._kept.kill()
        if self._reading is not None:
            await self._reading
        await self._kept.close()
