"""The coordinators of transactional ids as an instance sees them, and the calls to them.

Made only if transactions are on. Without them no key of slots and no coordinator is watched, so an instance that was
upgraded works with the rights that it had.
"""

from __future__ import annotations

from typing import Any

from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.process import Runtime
from kafscale.runtime.transactions.calling import CoordinatorCalls
from kafscale.runtime.transactions.channels import Channels
from kafscale.storage.membership.members import LiveView
from kafscale.storage.owner_views import SlotsView
from kafscale.storage.slots import ROLE
from kafscale.storage.views import PrefixView


class Coordinators:
    def __init__(self, runtime: Runtime[ProduceSettings]) -> None:
        """The tasks of the views and the channels are those of the runtime."""
        self._tasks = runtime.task_group
        self._live = LiveView(runtime.etcd, runtime.keyspace, ROLE)
        self._slots = SlotsView(runtime.etcd, runtime.keyspace)
        self._channels = Channels(self._live, runtime.dial, runtime.task_group.create_task)
        self.calls = CoordinatorCalls(self._channels, self._slots.of)

    @property
    def views(self) -> dict[str, PrefixView[Any]]:
        return {"slots": self._slots, "live_coordinator": self._live.view}

    async def start(self) -> None:
        """Returns when the views are read: before that every call fails."""
        self._tasks.create_task(self._live.run(), name="live-coordinators")
        self._tasks.create_task(self._slots.run(), name="slots-view")
        await self._live.loaded()
        await self._slots.ready()

    async def close(self) -> None:
        await self._channels.close()
