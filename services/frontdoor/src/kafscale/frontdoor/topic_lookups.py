"""Asks etcd whether a topic really is unknown, before a client is told so.

The topics' view follows a watch, so for some milliseconds it may not have a topic that a client was told
of elsewhere. Laws: one reading at a time serves everybody who asked before it began; after a reading the
view is asked again and believed; no reading is begun within `PAUSE_MS` of the last, so that a client with
a wrong name costs etcd no more than that. Who asks within the pause is told to believe the view.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import EtcdError

log = structlog.get_logger("kafscale.frontdoor.topic_lookups")

PAUSE_MS: Final = 50
TIMEOUT_S: Final = 1.0
Believe = Callable[[bool], None]


class Refreshable(Protocol):
    async def refresh(self) -> None: ...


class TopicLookups:
    def __init__(self, topics: Refreshable, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._topics = topics
        self._clock = clock
        self._tasks = tasks
        self._waiting: list[Believe] = []
        self._reading = False
        self._read_ms: int | None = None

    def ask(self, then: Believe) -> None:
        """Calls `then(True)` once the view may be believed, `then(False)` when etcd did not answer."""
        recent = self._read_ms is not None and self._clock.now_ms() - self._read_ms < PAUSE_MS
        if recent and not self._reading:
            then(True)
            return
        self._waiting.append(then)
        if not self._reading:
            self._reading = True
            self._tasks.create_task(self._read())

    async def _read(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            known = True
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._topics.refresh()
                self._read_ms = self._clock.now_ms()
            except (EtcdError, TimeoutError) as error:
                known = False
                log.warning("topics could not be looked up", reason=str(error))
            for then in waiting:
                then(known)
        self._reading = False
