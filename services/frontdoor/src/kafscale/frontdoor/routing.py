"""Which instance gets what: pure choices over the views, remembered until a view changes.

Produce goes to the owner that `/o/` names while it is registered, else to the node it was handed to, else
to rendezvous over the READY instances, which will claim it. Fetch goes by rendezvous alone, for warm
caches. A group's calls go to the coordinator that has its slot while it is registered, else to the node that
the slot was handed to, else to none: another coordinator would only refuse them. Other control calls of a connection
stay with one READY instance while it is there. `brokers_for` says for which share of the cluster this front door
answers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.backends import Channel, Live, Pool
from kafscale.frontdoor.exchange import Caller
from kafscale.frontdoor.lanes import LaneKey
from kafscale.storage.brokers import Broker, brokers_on
from kafscale.storage.coordination import OwnerRecord, holder_of
from kafscale.storage.keys import SlotId, TopicId
from kafscale.storage.slots import Slot, slot_of

CACHE_MAX = 200_000


class Owners(Protocol):
    """The owner records, by topic id and partition."""

    def of(self, key: LaneKey, /) -> OwnerRecord | None: ...

    def follow(self, listener: Callable[[LaneKey], None]) -> None: ...


class Slots(Protocol):
    """The claims of slots."""

    def of(self, slot_id: SlotId) -> Slot | None: ...

    def claimed(self) -> Iterable[Slot]: ...


class Routing:
    def __init__(self, pools: Mapping[Backend, Pool], owners: Owners, slots: Slots) -> None:
        self._pools = pools
        self._owners = owners
        self._slots = slots
        self._producers: dict[LaneKey, Channel | None] = {}
        self._fetchers: dict[LaneKey, Channel | None] = {}
        self._listeners: list[Callable[[LaneKey | None], None]] = []
        owners.follow(self._owner_changed)
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

    def coordinator(self, group: str) -> Channel | None:
        record = self._slots.of(slot_of(group))
        return None if record is None else holder_of(record, self._pools[Backend.COORDINATOR])

    def coordinators(self) -> tuple[Channel, ...] | None:
        """All that may know groups, by node; None while no coordinator knows the groups of some slot."""
        pool = self._pools[Backend.COORDINATOR]
        found = set(pool.ready)
        for record in self._slots.claimed():
            channel = holder_of(record, pool)
            if channel is None:
                return None
            found.add(channel)
        return tuple(sorted(found, key=lambda channel: channel.node_id))

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
        record = self._owners.of(key)
        holder = None if record is None else holder_of(record, self._pools[Backend.PRODUCE])
        return holder or self._pools[Backend.PRODUCE].preferred(*key)

    def _owner_changed(self, key: LaneKey) -> None:
        self._producers.pop(key, None)
        for listener in self._listeners:
            listener(key)

    def _producers_changed(self) -> None:
        self._producers.clear()
        for listener in self._listeners:
            listener(None)


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The brokers that the clients of a listener see, and which of them this front door is: None while it is not
    registered, or leaves.

    Tools ask every broker that Metadata names and join the answers. So each broker must answer only for its own share,
    by the rules that Metadata and FindCoordinator follow. Front doors with the same address are one broker, whichever
    of them a client reaches.
    """

    brokers: tuple[Broker, ...]
    here: Broker | None


def brokers_for(listener: str, front_doors: Live, node_id: int) -> BrokerView:
    """`node_id`: this front door's own."""
    instances = front_doors.instances()
    brokers = brokers_on(listener, instances)
    own = next(iter(brokers_on(listener, [each for each in instances if each.node_id == node_id])), None)
    if own is None:
        return BrokerView(brokers, None)
    address = (own.host, own.port)
    return BrokerView(brokers, next((each for each in brokers if (each.host, each.port) == address), None))
