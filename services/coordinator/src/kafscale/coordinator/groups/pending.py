"""The offsets that a transaction has pending in a group: how they are put, committed or dropped. Pure.

The laws (T9 in docs/protocol/transactions.md):

- Pending offsets reach the group exactly if their transaction is committed, and never over a newer commit. Each offset
  has the revision that put it (`since`), because the key is written again for other offsets of the transaction. A
  commit moves an offset only if the committed one is older than that.
- A commit moves up to MOVED_TOGETHER offsets in one transaction, and puts the rest back. The key goes with the last.
  So a coordinator that stops in the middle loses nothing, and the same end continues.
- Nothing is put after the end of its transaction. The question whether the group belongs to it (a join) may be out when
  the end comes; then the put is refused, and the client asks again.
- All changes are made one after another in the line of the group (`line`), under the slot's claim.
- A value that this version cannot read is not changed, except that it goes with its group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafscale.storage.etcd.client import Compare, Delete, KeyValue, Put, Range, Txn, TxnResult
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId, TopicId
from kafscale.storage.slots import slot_fence
from kafscale.storage.transactions import PendingOffset, PendingOffsets, decode_pending, encode_pending
from kafscale.wire.errors import ErrorCode

MOVED_TOGETHER: Final = 50
OFFSETS_MAX: Final = 10_000
"""Of one producer in one group."""
BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the pending offsets of one producer in one group are. `claim`: the revision of the slot's claim."""

    keyspace: Keyspace
    slot_id: SlotId
    claim: int
    group: str
    producer_id: int

    @property
    def key(self) -> bytes:
        return self.keyspace.pending(self.slot_id, self.group, self.producer_id)

    def committed(self, where: PartitionKey) -> bytes:
        return self.keyspace.committed(self.slot_id, self.group, *where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What the line knows of one place. `revision`: of the key; 0 if there is none.

    `unreadable`: there is a key, and its value is damaged or of a newer version. Such a place is only `dropped`.
    """

    place: Place
    value: PendingOffsets | None = None
    revision: int = 0
    unreadable: bool = False
    # of the questions whether the group belongs to a transaction of the producer
    questions: int = 0  # out, or answered and not put yet
    crossed: int = 0  # the highest number whose end came meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One transaction of the line, and the value that the key has after it. `where`: what it puts, moves or removes."""

    txn: Txn
    value: PendingOffsets | None
    where: frozenset[PartitionKey] = frozenset()


def loaded(place: Place, kv: KeyValue) -> Pending:
    """Raises UnreadableValue."""
    return Pending(place=place, value=decode_pending(kv.value), revision=kv.mod_revision)


def unreadable(place: Place, kv: KeyValue) -> Pending:
    return Pending(place=place, revision=kv.mod_revision, unreadable=True)


# --- questions ------------------------------------------------------------------------------------


def with_question(pending: Pending) -> Pending:
    return replace(pending, questions=pending.questions + 1)


def without_question(pending: Pending) -> Pending:
    """The put of its answer is in the line, or there will be none."""
    left = pending.questions - 1
    return replace(pending, questions=left, crossed=pending.crossed if left else 0)


def with_end(pending: Pending, number: int) -> Pending:
    """The end of this transaction has come, whether anything is pending or not."""
    return replace(pending, crossed=max(pending.crossed, number)) if pending.questions else pending


# --- changes --------------------------------------------------------------------------------------


def put(
    pending: Pending, epoch: int, number: int, offsets: Mapping[PartitionKey, CommittedOffset]
) -> Change | ErrorCode:
    """`number`: what the coordinator of the transactional id answered. The end that came with it is carried out before.

    CONCURRENT_TRANSACTIONS: the client asks again. INVALID_COMMIT_OFFSET_SIZE: there is no room for so many.
    """
    value = pending.value
    if number <= pending.crossed or (value is not None and value.number != number):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    kept = [each for each in _kept(pending) if each.where not in offsets]
    added = [
        PendingOffset(topic_id=topic_id, partition=partition, offset=offset)
        for (topic_id, partition), offset in offsets.items()
    ]
    after = PendingOffsets(
        group=pending.place.group,
        producer_id=pending.place.producer_id,
        epoch=epoch,
        number=number,
        offsets=(*kept, *added),
    )
    if len(after.offsets) > OFFSETS_MAX or len(encode_pending(after)) > BYTES_MAX:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return _change(pending, after, offsets)


def end(pending: Pending, number: int, *, commit: bool, deleted: Collection[TopicId] = ()) -> Change | None:
    """The next transaction of the end; to be called again until it returns None. None: nothing of the transaction is
    pending here, which counts after a read that compares the slot's claim (or after the last change).

    The offsets of `deleted` topics are dropped.
    """
    value = pending.value
    if value is None or value.number != number:
        return None
    if not commit:
        return dropped(pending)
    first, rest = _kept(pending)[:MOVED_TOGETHER], _kept(pending)[MOVED_TOGETHER:]
    moved = [each for each in first if each.topic_id not in deleted]
    after = replace(value, offsets=tuple(rest)) if rest else None
    moves = [_move(pending.place, each) for each in moved]
    return _change(pending, after, [each.where for each in moved], *moves)


def without(pending: Pending, where: Collection[PartitionKey]) -> Change | None:
    """For OffsetDelete. None: none of these is pending."""
    value, kept = pending.value, [each for each in _kept(pending) if each.where not in where]
    if value is None or len(kept) == len(value.offsets):
        return None
    return _change(pending, replace(value, offsets=tuple(kept)) if kept else None, where)


def dropped(pending: Pending) -> Change | None:
    """For DeleteGroups, and after an abort. None: nothing is pending."""
    return _change(pending, None) if pending.revision else None


def after_change(
    pending: Pending, change: Change, result: TxnResult, revision: int, *, ambiguous: bool
) -> Pending | None:
    """With `revision`, the request's. `ambiguous`: the transaction was sent more than once. None: the claim is lost."""
    if result.succeeded:
        return _after(pending, change, revision)
    claims, values = range_at(result, 0).kvs, range_at(result, 1).kvs
    if not ambiguous or not claims or claims[0].mod_revision != pending.place.claim:
        return None
    if change.value is None:
        return None if values else _after(pending, change, 0)
    if not values or values[0].value != encode_pending(change.value):
        return None
    return _after(pending, change, values[0].mod_revision)


def _after(pending: Pending, change: Change, revision: int) -> Pending:
    return replace(
        pending, value=change.value, revision=0 if change.value is None else revision, unreadable=False
    )


def _kept(pending: Pending) -> list[PendingOffset]:
    """As they are put back: the write makes the key newer than they are."""
    offsets = () if pending.value is None else pending.value.offsets
    return [each if each.since else replace(each, since=pending.revision) for each in offsets]


def _move(place: Place, each: PendingOffset) -> Txn:
    """Unless a newer commit is there."""
    key = place.committed(each.where)
    return Txn(
        compare=(Compare(key, "mod", "<", each.since),), success=(Put(key, encode_committed(each.offset)),)
    )


def _change(
    pending: Pending, value: PendingOffsets | None, where: Iterable[PartitionKey] = (), *moves: Txn
) -> Change:
    place = pending.place
    last = Delete(place.key) if value is None else Put(place.key, encode_pending(value))
    txn = Txn(
        compare=(
            slot_fence(place.keyspace, place.slot_id, place.claim),
            Compare(place.key, "mod", "=", pending.revision),
        ),
        success=(*moves, last),
        failure=(Range(place.keyspace.slot_claim(place.slot_id), keys_only=True), Range(place.key)),
    )
    return Change(txn=txn, value=value, where=frozenset(where))


# --- readers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unstable:
    """The partitions of a group that have a pending offset. OffsetFetch with require_stable answers
    UNSTABLE_OFFSET_COMMIT for them. `all`: a value could not be read, so every partition may have one."""

    partitions: frozenset[PartitionKey]
    all: bool

    def __contains__(self, where: object) -> bool:
        return self.all or where in self.partitions


def unstable(of_group: Iterable[Pending]) -> Unstable:
    """From all places of the group, which are looked at before its committed offsets are read. After them, a move in
    between would show the old offset as stable."""
    partitions: set[PartitionKey] = set()
    for pending in of_group:
        if pending.unreadable:
            return Unstable(frozenset(), True)
        partitions |= {each.where for each in _kept(pending)}
    return Unstable(frozenset(partitions), False)
