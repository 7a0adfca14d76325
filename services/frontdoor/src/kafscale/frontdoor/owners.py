"""Who owns which partition, by a watch on the small owner records: never on the heads."""

from collections.abc import Callable

from kafscale.frontdoor.lanes import LaneKey
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.heads import OwnerRecord, decode_owner
from kafscale.storage.keys import Keyspace
from kafscale.storage.views import PrefixView


class OwnersView:
    """`view.run` it in a task."""

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
        self._keyspace.parse_owner(kv.key)  # raises UnknownKey: what is no partition's record is not kept
        return decode_owner(kv.value)

    def _changed(self, key: bytes, record: OwnerRecord | None) -> None:
        lane = self._keyspace.parse_owner(key)
        if record is None:
            self._records.pop(lane, None)
        else:
            self._records[lane] = record
        for listener in self._listeners:
            listener(lane)
