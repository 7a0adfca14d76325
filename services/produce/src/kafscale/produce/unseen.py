"""Requests for topics that the local view does not show yet.

A topic is used the moment it was created, often before the watch tells of it. The law: the first
request for an unseen topic has etcd asked, later ones for the same topic queue behind it, and all go
on in arrival order when the view is as new as the first of them. However many names clients make
up, etcd is asked once at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from kafscale.storage.etcd.client import EtcdError

log = structlog.get_logger(__name__)

REFRESH_TIMEOUT_S = 2.0


class UnseenTopics:
    """Queues of continuations per name or id. One look at etcd at a time serves all that wait."""

    def __init__(self, refresh: Callable[[], Awaitable[None]], tasks: asyncio.TaskGroup) -> None:
        self._refresh = refresh
        self._tasks = tasks
        self._queues: dict[str | bytes, list[Callable[[], None]]] = {}
        self._looking = False

    def waits(self, ref: str | bytes) -> bool:
        return bool(self._queues) and ref in self._queues

    def wait(self, ref: str | bytes, go_on: Callable[[], None]) -> None:
        self._queues.setdefault(ref, []).append(go_on)
        if not self._looking:
            self._looking = True
            self._tasks.create_task(self._look())

    async def _look(self) -> None:
        while self._queues:
            asked = tuple(self._queues)  # what comes during the look waits for the next one
            try:
                async with asyncio.timeout(REFRESH_TIMEOUT_S):
                    await self._refresh()
            except (EtcdError, TimeoutError) as error:
                log.info("topics not refreshed", error=repr(error))
            for ref in asked:
                for go_on in self._queues.pop(ref):
                    go_on()
        self._looking = False
