"""Which instance owns a partition, and which coordinator owns a slot: watched copies of the small owner records.

The front door never watches the heads. Run `view.run` of each in a task.
"""

from collections.abc import Callable, Iterable

from kafscale.frontdoor.lanes import LaneKey
from kafscale.storage.coordination import OwnerRecord, decode_owner
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.slots import SLOTS, Slot, decode_slot
from kafscale.storage.views import PrefixView


class OwnersView:
    """The owner records of partitions."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._records: dict[LaneKey, OwnerRecord] = {}
        self._listeners: list[Callable[[LaneKey], None]] = []
        self.view: PrefixView[OwnerRecord] = PrefixView(etcd, keyspace.owners_prefix(), self._decode)
        self.view.subscribe(self._changed)

    def get(self, key: LaneKey) -> OwnerRecord | None:
        return self._records.get(key)

    def subscribe(self, listener: Callable[[LaneKey], None]) -> None:
        self._listeners.append(listener)

    def _decode(self, kv: KeyValue) -> OwnerRecord:
        self._keyspace.parse_owner(kv.key)  # raises UnknownKey: other keys are not kept
        return decode_owner(kv.value)

    def _changed(self, key: bytes, record: OwnerRecord | None) -> None:
        lane = self._keyspace.parse_owner(key)
        if record is None:
            self._records.pop(lane, None)
        else:
            self._records[lane] = record
        for listener in self._listeners:
            listener(lane)


class SlotsView:
    """The claims of the 64 slots."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self._keys = [keyspace.slot_claim(SlotId(number)) for number in range(SLOTS)]
        self.view: PrefixView[Slot] = PrefixView(etcd, keyspace.slot_claims_prefix(), self._decode)

    def get(self, slot_id: SlotId) -> Slot | None:
        return self.view.items.get(self._keys[slot_id])

    def claimed(self) -> Iterable[Slot]:
        """Those that ever had an owner: in any other there is no group."""
        return self.view.items.values()

    @staticmethod
    def _decode(kv: KeyValue) -> Slot:
        return decode_slot(kv.value)
