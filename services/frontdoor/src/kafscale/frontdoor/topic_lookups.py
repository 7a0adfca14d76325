"""Asks etcd whether a topic really is unknown, before a client gets that answer.

The topics' view follows a watch, so for some milliseconds it may lack a topic that a client has seen elsewhere. Laws:
one read at a time serves every request that asked before it began. After a read the view is checked again and
believed. No read begins within `PAUSE_MS` of the last, so a client with a wrong name costs etcd no more than that. A
request that asks within the pause believes the view.
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
                log.warning("topic lookup failed", reason=str(error))
            for then in waiting:
                then(known)
        self._reading = False
