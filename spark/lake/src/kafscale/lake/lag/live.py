"""What reports are made of, always recent: for a page that asks again and again.

It is read when somebody asks and the last reading is old, one reading at a time. So many readers cost no more than one
reading per interval, and a page that nobody looks at costs nothing. The interval grows with the cluster: this process
works at most SHARE_MAX of the time, as it makes nothing but reports. A reader waits PATIENCE_S at most, and then gets
the last reading. If etcd or the store does not answer, `trouble` says so and the last reading stays.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kafscale.lake.lag.report import Facts
from kafscale.storage.etcd.client import EtcdError, EtcdUnknown
from kafscale.storage.objects import StoreError

PATIENCE_S: Final = 1.0
"""Less than a page waits, so that a slow reading does not take the last report from it."""
SHARE_MAX: Final = 0.1
"""Of one processor."""
READ_TIMEOUT_S: Final = 120.0

ReadFacts = Callable[[], Awaitable[Facts]]


class LiveFacts:
    """`trouble`: why the last reading failed, None if it did not. `tasks` owns the readings. `cpu_s`: the processor
    time of this process."""

    def __init__(
        self,
        read: ReadFacts,
        every_s: float,
        tasks: asyncio.TaskGroup,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._read, self._every_s, self._tasks, self._cpu_s = read, every_s, tasks, cpu_s
        self._reading: asyncio.Task[None] | None = None
        self._read_s = -math.inf
        self._cpu_before_s = 0.0
        self._facts: Facts | None = None
        self.trouble: str | None = None

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    async def newest(self) -> Facts | None:
        """None: there was no reading yet that ended well."""
        if self._reading is None and self._is_due():
            self._cpu_before_s = self._cpu_s()
            self._reading = self._tasks.create_task(self._read_again())
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        return self._facts

    def _is_due(self) -> bool:
        """What the process has worked since the last reading began is that reading and the reports of it."""
        if self._read_s == -math.inf:
            return True
        worked_s = self._cpu_s() - self._cpu_before_s
        pause_s = max(self._every_s, worked_s / SHARE_MAX)
        return asyncio.get_running_loop().time() - self._read_s >= pause_s

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
