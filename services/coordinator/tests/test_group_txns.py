"""The law of group_txns on a model of etcd: a copy of a transaction that is applied late has no effect."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.coordinator.groups.group_txns import GroupChange, GroupKey, GroupTxn, txns_of
from kafscale.storage.consumer_groups import Part, PartKind, part_key, stored_groups
from kafscale.storage.etcd.client import Delete, KeyValue, Put
from kafscale.storage.groups import ConsumerGroupMetadata, GroupRecord, encode_group
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.store.v1 import store_pb2 as pb

KEYS = Keyspace("n")
GROUP = KEYS.group(SlotId(3), "g")
OLD = b"a record of the old format"
RECORD = encode_group(GroupRecord(group="g", state=ConsumerGroupMetadata(group_epoch=5, assignment_epoch=5)))


@dataclass
class Model:
    """A store of keys. A transaction applies if the group's key has the revision that it compares."""

    values: dict[bytes, bytes]
    revision: int = 7  # of the group's key
    applied: list[tuple[GroupTxn, int]] = field(default_factory=list)

    def send(self, txn: GroupTxn) -> None:
        self.applied.append((txn, self.revision))
        self.copy(txn, self.revision)

    def copy(self, txn: GroupTxn, compared: int) -> None:
        if compared != self.revision:
            return
        for op in txn.ops:
            if isinstance(op, Put):
                self.values[op.key] = op.value
            elif op.range_end is None:
                self.values.pop(op.key, None)
            else:
                assert isinstance(op, Delete)
                self.values = {
                    key: value for key, value in self.values.items() if not op.key <= key < op.range_end
                }
        if txn.record is not GroupKey.UNTOUCHED:
            self.revision += 1


def change(members: int) -> GroupChange:
    """What `change_of` makes of a group that etcd has not, or has in the old format."""
    early = {}
    for number in range(members):
        name = f"m{number:03d}"
        early[Part(PartKind.METADATA, name)] = pb.ConsumerMemberMetadata(schema=1).SerializeToString()
        early[Part(PartKind.ASSIGNMENT, name)] = pb.ConsumerMemberAssignment(
            schema=1, state=1
        ).SerializeToString()
    return GroupChange(record=RECORD, early=early)


LEFT = [Part(kind, name) for kind in PartKind for name in ("a", "m001", "m0015", "m999", "z")]


@pytest.mark.parametrize("held", [{GROUP: OLD}, {}], ids=["old", "new"])
@given(
    members=st.integers(0, 12),
    left=st.sets(st.sampled_from(LEFT)),
    ops_max=st.integers(2, 30),
    late=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6),
)
def test_no_copy_removes_a_key_of_the_group_and_no_leftover_stays(
    held: dict[bytes, bytes],
    members: int,
    left: set[Part],
    ops_max: int,
    late: list[tuple[int, int]],
) -> None:
    """`late`: behind which transaction a copy of which earlier one arrives."""
    etcd = Model(held | {part_key(KEYS, GROUP, part): b"left over" for part in left})
    txns = txns_of(change(members), KEYS, GROUP, leftovers=True, ops_max=ops_max)
    for at, txn in enumerate(txns):
        assert len(txn.ops) <= max(ops_max, 2)
        etcd.send(txn)
        for behind, of in late:
            if behind % len(txns) == at:
                etcd.copy(*etcd.applied[of % (at + 1)])
    kvs = [KeyValue(key, value, 1, 1, 1, 0) for key, value in etcd.values.items()]
    (group,) = stored_groups(KEYS, kvs, pytest.fail).values()
    assert group.parts == dict(change(members).early)
    assert group.record is not None
    assert group.record.value == RECORD
