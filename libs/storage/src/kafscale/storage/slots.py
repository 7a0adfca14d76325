"""Slots: the unit in which groups are coordinated, and the transactions by which a slot changes hands.

Pure. A group's id says its slot for ever. The laws are those of a partition's head: a claim is one
compare-and-swap on the slot's key and raises its epoch; every other compare only keeps claimers polite.
The key is the fence of everything under `g/{slot}/` and `c/{slot}/`: each write there compares its
mod_revision (`slot_fence`), so that who has lost the slot can neither end a rebalance nor commit an offset.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from kafscale.storage.coordination import Grounds, OwnerRecord, decode_owner, encode_owner, owner_gone
from kafscale.storage.etcd.client import Compare, Put, Range, Txn, TxnResult
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.keys import Keyspace, SlotId

ROLE: Final = "coordinator"
SLOTS: Final = 64
"""Persisted: with another number every group would be looked for where it is not."""
PLACE: Final = b"cs"
"""Names slots where a partition has its topic id: for rendezvous hashing."""


Slot = OwnerRecord
"""`{prefix}/cs/{slot}`: the same record as a partition's."""


def slot_of(group: str) -> SlotId:
    return SlotId(crc32(group.encode()) % SLOTS)


def build_slot_claim(
    keyspace: Keyspace, slot_id: SlotId, *, slot: Slot | None, revision: int, me: str, why: Grounds
) -> tuple[Slot, Txn]:
    """The claimed slot, and the transaction that writes it. `slot` is the record at `revision` (None and 0: never
    claimed). May be nested: many in one request."""
    assert (slot is None) == (revision == 0), revision
    claimed = Slot(epoch=1 if slot is None else slot.epoch + 1, owner=me)
    compares = [slot_fence(keyspace, slot_id, revision)]
    if why is Grounds.OWNER_GONE:
        assert slot is not None, "an owner without a record"
        compares.append(owner_gone(keyspace, ROLE, slot.owner))
    key = keyspace.slot_claim(slot_id)
    txn = Txn(
        compare=tuple(compares),
        success=(Put(key, encode_owner(claimed)),),
        failure=(Range(key),),
    )
    return claimed, txn


def read_slot_claim(claimed: Slot, result: TxnResult, revision: int) -> int | None:
    """The revision that every write under the slot compares, or None if another instance has the slot.

    `result` is the claim's own answer; `revision` the one of the whole request, the only reliable one. A failed compare
    whose record is this very claim's means that an earlier try of it was applied.
    """
    if result.succeeded:
        return revision
    slot, found_at = slot_in(result)
    return found_at if slot == claimed else None


def build_slot_release(
    keyspace: Keyspace, slot_id: SlotId, *, slot: Slot, revision: int, handoff_to: str
) -> Txn:
    """Give the slot away: it keeps its epoch, and the node in `handoff_to` ("" for any) may claim at once.

    A failure has read what is there (`slot_in`): the released record, if an earlier try was applied.
    """
    key = keyspace.slot_claim(slot_id)
    released = Slot(epoch=slot.epoch, handoff_to=handoff_to)
    return Txn(
        compare=(slot_fence(keyspace, slot_id, revision),),
        success=(Put(key, encode_owner(released)),),
        failure=(Range(key),),
    )


def slot_fence(keyspace: Keyspace, slot_id: SlotId, revision: int) -> Compare:
    """Holds while no instance has claimed or released the slot since `revision`."""
    return Compare(keyspace.slot_claim(slot_id), "mod", "=", revision)


def slot_in(result: TxnResult) -> tuple[Slot | None, int]:
    """The record that the failure branch of a claim or a release has read, and its mod_revision."""
    kvs = range_at(result, 0).kvs
    return (decode_owner(kvs[0].value), kvs[0].mod_revision) if kvs else (None, 0)
