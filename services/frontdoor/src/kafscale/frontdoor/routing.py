"""Which instance gets what: pure choices over the views, remembered until a view changes.

Produce goes to the owner that `/o/` names while it is registered, else to the node it was handed to, else
to rendezvous over the READY instances, which will claim it. Fetch goes by rendezvous alone, for warm
caches. Control calls stay with one READY instance per connection while it is there.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from kafscale.frontdoor.backends import Channel, Pool
from kafscale.frontdoor.exchange import Caller
from kafscale.frontdoor.lanes import LaneKey
from kafscale.frontdoor.routes import Backend
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.keys import TopicId

CACHE_MAX = 200_000


class Owners(Protocol):
    """The owner records, by topic id and partition."""

    def get(self, key: LaneKey) -> OwnerRecord | None: ...

    def subscribe(self, listener: Callable[[LaneKey], None]) -> None: ...


class Routing:
    def __init__(self, pools: Mapping[Backend, Pool], owners: Owners) -> None:
        self._pools = pools
        self._owners = owners
        self._producers: dict[LaneKey, Channel | None] = {}
        self._fetchers: dict[LaneKey, Channel | None] = {}
        self._listeners: list[Callable[[LaneKey | None], None]] = []
        owners.subscribe(self._owner_changed)
        pools[Backend.PRODUCE].subscribe(self._producers_changed)
        pools[Backend.FETCH].subscribe(self._fetchers.clear)

    def pool(self, backend: Backend) -> Pool:
        return self._pools[backend]

    def subscribe(self, listener: Callable[[LaneKey | None], None]) -> None:
        """Called when the producer of one lane, or (None) of any lane, may have changed."""
        self._listeners.append(listener)

    def producer(self, key: LaneKey) -> Channel | None:
        cached = self._producers.get(key)
        if cached is not None:
            return cached
        if len(self._producers) >= CACHE_MAX:
            self._producers.clear()
        channel = self._producers[key] = self._find_producer(key)
        return channel

    def fetcher(self, topic_id: TopicId, partition: int) -> Channel | None:
        key = (topic_id, partition)
        cached = self._fetchers.get(key)
        if cached is not None:
            return cached
        if len(self._fetchers) >= CACHE_MAX:
            self._fetchers.clear()
        channel = self._fetchers[key] = self._pools[Backend.FETCH].preferred(topic_id, partition)
        return channel

    def control(self, caller: Caller, backend: Backend) -> Channel | None:
        pool = self._pools[backend]
        channel = caller.controls.get(backend)
        if channel is not None and pool.has(channel) and channel.instance.is_ready:
            return channel
        if not pool.ready:
            return None
        channel = pool.ready[caller.connection_id % len(pool.ready)]
        caller.controls[backend] = channel
        return channel

    def _find_producer(self, key: LaneKey) -> Channel | None:
        pool = self._pools[Backend.PRODUCE]
        record = self._owners.get(key)
        if record is not None:
            owner = pool.by_id(record.owner) if record.owner else None
            if owner is not None:
                return owner
            heir = pool.by_node(int(record.handoff_to)) if record.handoff_to.isdecimal() else None
            if heir is not None:
                return heir
        return pool.preferred(*key)

    def _owner_changed(self, key: LaneKey) -> None:
        self._producers.pop(key, None)
        for listener in self._listeners:
            listener(key)

    def _producers_changed(self) -> None:
        self._producers.clear()
        for listener in self._listeners:
            listener(None)
