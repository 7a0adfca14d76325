"""Which coordinator has which slot, by a watch on the 64 claims."""

from collections.abc import Iterable

from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.slots import SLOTS, Slot, decode_slot
from kafscale.storage.views import PrefixView


class SlotsView:
    """`view.run` it in a task."""

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
