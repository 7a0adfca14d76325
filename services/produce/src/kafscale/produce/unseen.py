"""Requests for topics that the local view does not show yet.

A topic is used the moment it was created, often before the watch tells of it. The law: the first
request for an unseen topic asks etcd, later ones for the same topic queue behind it, and all go on
in arrival order when the view is as new as the first of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from kafscale.storage.etcd import EtcdError

log = structlog.get_logger(__name__)

REFRESH_TIMEOUT_S = 2.0


class UnseenTopics:
    """Queues of continuations per name or id."""

    def __init__(self, refresh: Callable[[], Awaitable[None]], tasks: asyncio.TaskGroup) -> None:
        self._refresh = refresh
        self._tasks = tasks
        self._queues: dict[str | bytes, list[Callable[[], None]]] = {}

    def waits(self, ref: str | bytes) -> bool:
        return bool(self._queues) and ref in self._queues

    def wait(self, ref: str | bytes, go_on: Callable[[], None]) -> None:
        queue = self._queues.get(ref)
        if queue is not None:
            queue.append(go_on)
            return
        self._queues[ref] = [go_on]
        self._tasks.create_task(self._look(ref))

    async def _look(self, ref: str | bytes) -> None:
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                await self._refresh()
        except (EtcdError, TimeoutError) as error:
            log.info("topics not refreshed", error=repr(error))
        for go_on in self._queues.pop(ref):
            go_on()
