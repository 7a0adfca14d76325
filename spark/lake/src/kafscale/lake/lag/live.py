"""What reports are made of, always recent: for a page that asks again and again.

It is read when somebody asks and the last reading is old, one reading at a time. So many readers cost no more than one
reading per interval, and a page that nobody looks at costs nothing. A reader waits PATIENCE_S at most, and then gets
the last reading. If etcd or the store does not answer, `trouble` says so and the last reading stays.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from kafscale.lake.lag.report import Facts
from kafscale.storage.etcd.client import EtcdError, EtcdUnknown
from kafscale.storage.objects import StoreError

PATIENCE_S: Final = 3.0
READ_TIMEOUT_S: Final = 120.0

ReadFacts = Callable[[], Awaitable[Facts]]


class LiveFacts:
    """`trouble`: why the last reading failed, None if it did not. `tasks` owns the readings."""

    def __init__(self, read: ReadFacts, every_s: float, tasks: asyncio.TaskGroup) -> None:
        self._read, self._every_s, self._tasks = read, every_s, tasks
        self._reading: asyncio.Task[None] | None = None
        self._read_s = -math.inf
        self._facts: Facts | None = None
        self.trouble: str | None = None

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    async def newest(self) -> Facts | None:
        """None: there was no reading yet that ended well."""
        if self._reading is None and asyncio.get_running_loop().time() - self._read_s >= self._every_s:
            self._reading = self._tasks.create_task(self._read_again())
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        return self._facts

    async def _read_again(self) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                self._facts = await self._read()
            self.trouble = None
        except TimeoutError:
            self.trouble = f"etcd and the store did not answer within {READ_TIMEOUT_S:.0f} s"
        except EtcdUnknown as away:
            self.trouble = f"etcd does not answer: {away.detail}"
        except (EtcdError, StoreError) as trouble:
            self.trouble = str(trouble)
        self._read_s = asyncio.get_running_loop().time()
        self._reading = None
