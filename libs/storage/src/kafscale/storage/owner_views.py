"""Which instance owns a partition, and which coordinator owns a slot: watched copies of the small owner records.

Services that only need owners never watch the heads. Run each view in a task.
"""

from collections.abc import Callable, Iterable

from kafscale.storage.coordination import OwnerRecord, decode_owner
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId
from kafscale.storage.slots import SLOTS, Slot
from kafscale.storage.views import PrefixView


class OwnersView(PrefixView[OwnerRecord]):
    """The owner records of partitions."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        super().__init__(etcd, keyspace.owners_prefix(), self._decode_record)
        self._keyspace = keyspace

    def of(self, partition: PartitionKey) -> OwnerRecord | None:
        return self.items.get(self._keyspace.owner(*partition))

    def follow(self, listener: Callable[[PartitionKey], None]) -> None:
        """Calls `listener` with each partition whose record has changed."""
        self.subscribe(lambda key, _: listener(self._keyspace.parse_owner(key)))

    def _decode_record(self, kv: KeyValue) -> OwnerRecord:
        self._keyspace.parse_owner(kv.key)  # raises UnknownKey: other keys are not kept
        return decode_owner(kv.value)


class SlotsView(PrefixView[Slot]):
    """The claims of the 64 slots. Coordinators keep theirs with the revisions that their writes compare."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        super().__init__(etcd, keyspace.slot_claims_prefix(), lambda kv: decode_owner(kv.value))
        self._keys = [keyspace.slot_claim(SlotId(number)) for number in range(SLOTS)]

    def of(self, slot_id: SlotId) -> Slot | None:
        return self.items.get(self._keys[slot_id])

    def claimed(self) -> Iterable[Slot]:
        """Those that ever had an owner: in any other there is no group."""
        return self.items.values()
