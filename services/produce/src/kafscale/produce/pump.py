"""Drives the partitions that something happened to, once per turn of the event loop.

The law: whatever arrived in one turn is seen together. Sixty-four requests that came in one frame,
or four commits that one answer settled, cost one pass over their partition and share its flush.

A drive that raises is our bug. It leaves actions that were taken and will never be performed, and partitions that
are not driven. So it ends the process, as it would from a task; the log is what etcd says.

`Alarm` is a timer for work whose due time changes often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextvars import Context
from typing import Protocol

from kafscale.produce.log.model import Instant
from kafscale.runtime.clock import Clock


class Alarm:
    """Most changes move the due time a little. So an armed timer that is early enough stays; `fired` looks again."""

    __slots__ = ("_due_ms", "_fired", "_timer")

    def __init__(self, fired: Callable[[], None]) -> None:
        self._fired = fired
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def arm(self, due_ms: int, now_ms: int) -> None:
        """Times of the monotonic clock."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(0, due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._fired()


class Driven(Hashable, Protocol):
    """A partition."""

    def drive(self, now: Instant) -> None: ...


class Pump:
    """Collects touched partitions and drives them in a callback of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Drives serve many requests: they must not run under the ids of the one that touched first.
        self._context = Context()
        self.after: Callable[[Iterable[Driven], Instant], None] | None = None
        """Called after the partitions were driven: what concerns several of them."""
        self._touched: dict[Driven, None] = {}
        self._scheduled = False
        self._broken = asyncio.Event()
        self._surprise: Exception | None = None
        self.stopped = False

    async def run(self) -> None:
        """Drives until cancelled: what the loop calls after that must start nothing any more.

        Raises what a drive raised.
        """
        try:
            await self._broken.wait()
        finally:
            self.stopped = True
        assert self._surprise is not None, "this is what broke it"
        raise self._surprise

    def touch(self, partition: Driven) -> None:
        self._touched[partition] = None
        self.wake()

    def wake(self) -> None:
        """Drive what is touched, and what comes after, in the next turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run, context=self._context)

    def instant(self) -> Instant:
        return Instant(self._clock.now_ms(), self._clock.wall_ms())

    def _run(self) -> None:
        self._scheduled = False
        touched, self._touched = self._touched, {}
        if self.stopped:
            return
        now = self.instant()
        try:
            for partition in touched:
                partition.drive(now)
            if self.after is not None:
                self.after(touched, now)
        except Exception as surprise:  # noqa: BLE001 - `run` raises it
            self.stopped = True
            self._surprise = surprise
            self._broken.set()
