"""etcd and the object store of the cluster, opened when a page first needs them.

Law: what is read here was not checked by the front door. A handler cuts it by the rights of the login (`Call.seen`),
or its route needs a right on the cluster.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING

from kafscale.console.answers import Problem
from kafscale.console.direct.children import Children
from kafscale.console.direct.lag import LagReports
from kafscale.operations.sentences import Trouble

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster
    from kafscale.operations.target import Target


class Stores:
    def __init__(self, target: Target) -> None:
        self.target = target
        """For a child process, which opens them itself."""
        self.lag = LagReports(target)
        self.children = Children(target)
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._cluster: Cluster | None = None

    async def cluster(self) -> Cluster:
        """Raises Problem."""
        from kafscale.operations.clusters import opened_running  # gRPC, for which an idle console has no use
        from kafscale.runtime.settings_load import BadSettings
        from kafscale.storage.etcd.client import EtcdError

        async with self._opening:
            if self._cluster is None:
                try:
                    opening = opened_running(self.target)
                    self._cluster = await self._stack.enter_async_context(opening)
                except (Trouble, BadSettings, EtcdError) as trouble:
                    raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", str(trouble)) from trouble
            return self._cluster

    async def close(self) -> None:
        await self.lag.close()
        await self.children.close()
        await self._stack.aclose()
