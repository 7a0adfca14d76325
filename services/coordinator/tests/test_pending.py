"""Pending offsets of a transaction, against a real etcd: what is put, what reaches the group, and what never does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from kafscale.coordinator.groups import pending
from kafscale.coordinator.groups.pending import MOVED_TOGETHER, Change, Pending, Place, Unstable
from kafscale.storage.etcd.client import EtcdClient, Put, Txn
from kafscale.storage.groups import CommittedOffset, decode_committed, encode_committed
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId, TopicId
from kafscale.storage.schema import CorruptValue
from kafscale.storage.transactions import decode_pending
from kafscale.wire.errors import ErrorCode

GROUP, PID, SLOT = "a/group", 7, SlotId(3)
TOPIC, OTHER = TopicId(b"t" * 16), TopicId(b"u" * 16)


@dataclass
class Line:
    """The line of the group, one change after another."""

    etcd: EtcdClient
    held: Pending

    async def make(self, change: Change | ErrorCode | None) -> None:
        assert isinstance(change, Change), change
        result = await self.etcd.txn(change.txn)
        after = pending.after_change(self.held, change, result, result.revision, ambiguous=False)
        assert after is not None
        self.held = after

    async def put(self, offsets: Mapping[PartitionKey, int], number: int = 1) -> None:
        values = {where: CommittedOffset(offset=offset, commit_ms=1) for where, offset in offsets.items()}
        await self.make(pending.put(self.held, 0, number, values))

    async def end(self, *, commit: bool, number: int = 1, deleted: tuple[TopicId, ...] = ()) -> int:
        """How many transactions it took."""
        count = 0
        while (change := pending.end(self.held, number, commit=commit, deleted=deleted)) is not None:
            await self.make(change)
            count += 1
        assert await self.etcd.get(self.held.place.key) is None
        return count

    async def commit(self, where: PartitionKey, offset: int) -> None:
        """A plain commit."""
        value = encode_committed(CommittedOffset(offset=offset, commit_ms=2))
        await self.etcd.txn(Txn(success=(Put(self.held.place.committed(where), value),)))

    async def offset(self, where: PartitionKey) -> int | None:
        kv = await self.etcd.get(self.held.place.committed(where))
        return None if kv is None else decode_committed(kv.value).offset

    async def reloaded(self) -> Line:
        """Another coordinator has claimed the slot and reads what is there."""
        place = await claimed(self.etcd, self.held.place.keyspace)
        kv = await self.etcd.get(place.key)
        return Line(self.etcd, Pending(place=place) if kv is None else pending.loaded(place, kv))


async def claimed(etcd: EtcdClient, keys: Keyspace) -> Place:
    claim = await etcd.put(keys.slot_claim(SLOT), b"")
    return Place(keyspace=keys, slot_id=SLOT, claim=claim.revision, group=GROUP, producer_id=PID)


@pytest.fixture
async def line(etcd: EtcdClient, keyspace: Keyspace) -> Line:
    return Line(etcd, Pending(place=await claimed(etcd, keyspace)))


async def test_a_commit_moves_the_last_offset_of_each_partition(line: Line) -> None:
    await line.put({(TOPIC, 0): 1, (TOPIC, 1): 2})
    await line.put({(TOPIC, 0): 3})
    assert await line.offset((TOPIC, 0)) is None
    assert await line.end(commit=True) == 1
    assert [await line.offset((TOPIC, number)) for number in range(2)] == [3, 2]


async def test_an_abort_moves_nothing(line: Line) -> None:
    await line.commit((TOPIC, 0), 9)
    await line.put({(TOPIC, 0): 10, (TOPIC, 1): 2})
    assert await line.end(commit=False) == 1
    assert [await line.offset((TOPIC, number)) for number in range(2)] == [9, None]


async def test_a_newer_plain_commit_stays_and_an_older_one_goes(line: Line) -> None:
    await line.commit((TOPIC, 0), 1)
    await line.put({(TOPIC, 0): 2, (TOPIC, 1): 3})
    await line.commit((TOPIC, 1), 4)
    await line.put({(OTHER, 0): 5})  # it makes the key newer than the plain commit
    await line.end(commit=True)
    assert [await line.offset((TOPIC, number)) for number in range(2)] == [2, 4]


async def test_a_load_does_not_make_offsets_newer_than_they_are(line: Line) -> None:
    await line.put({(TOPIC, 0): 2})
    await line.commit((TOPIC, 0), 4)
    after = await line.reloaded()
    await after.put({(TOPIC, 1): 3})
    await after.end(commit=True)
    assert [await after.offset((TOPIC, number)) for number in range(2)] == [4, 3]


async def test_a_large_commit_is_made_in_parts_and_goes_on_after_a_crash(line: Line) -> None:
    wanted = {(TOPIC, number): number for number in range(2 * MOVED_TOGETHER + 1)}
    await line.put(wanted)
    await line.make(pending.end(line.held, 1, commit=True))
    newer = (TOPIC, 2 * MOVED_TOGETHER)
    await line.commit(newer, 999)
    after = await line.reloaded()
    await after.make(pending.end(after.held, 1, commit=True))
    assert await after.end(commit=True) == 1
    assert [await after.offset(where) for where in wanted] == [*range(2 * MOVED_TOGETHER), 999]


async def test_the_offsets_of_deleted_topics_are_dropped(line: Line) -> None:
    await line.put({(TOPIC, 0): 1, (OTHER, 0): 2})
    await line.end(commit=True, deleted=(TOPIC,))
    assert [await line.offset((topic, 0)) for topic in (TOPIC, OTHER)] == [None, 2]


async def test_the_end_of_another_transaction_changes_nothing(line: Line) -> None:
    await line.put({(TOPIC, 0): 1}, number=4)
    assert pending.end(line.held, 3, commit=True) is None
    assert pending.end(line.held, 5, commit=False) is None
    assert await line.etcd.get(line.held.place.key) is not None


async def test_after_the_claim_is_lost_nothing_is_written(line: Line) -> None:
    await line.put({(TOPIC, 0): 1})
    await line.reloaded()
    change = pending.end(line.held, 1, commit=True)
    assert change is not None
    result = await line.etcd.txn(change.txn)
    assert pending.after_change(line.held, change, result, result.revision, ambiguous=True) is None
    assert await line.offset((TOPIC, 0)) is None


@pytest.mark.parametrize("last", [True, False])
async def test_a_repeated_change_is_recognized(line: Line, last: bool) -> None:
    await line.put({(TOPIC, number): 1 for number in range(MOVED_TOGETHER + (not last))})
    change = pending.end(line.held, 1, commit=True)
    assert change is not None
    first = await line.etcd.txn(change.txn)
    again = await line.etcd.txn(change.txn)
    assert not again.succeeded
    assert pending.after_change(line.held, change, again, again.revision, ambiguous=False) is None
    after = pending.after_change(line.held, change, again, again.revision, ambiguous=True)
    assert after == pending.after_change(line.held, change, first, first.revision, ambiguous=False)


async def test_a_repeat_that_was_never_applied_is_not_taken_for_one_that_was(line: Line) -> None:
    await line.put({(TOPIC, 0): 1})
    change = pending.put(line.held, 0, 1, {(TOPIC, 1): CommittedOffset(offset=1, commit_ms=1)})
    assert isinstance(change, Change)
    await line.etcd.put(line.held.place.key, b"of another writer")
    result = await line.etcd.txn(change.txn)
    assert pending.after_change(line.held, change, result, result.revision, ambiguous=True) is None


# --- questions that are out -----------------------------------------------------------------------

OFFSET = {(TOPIC, 0): CommittedOffset(offset=1, commit_ms=1)}


async def test_a_put_whose_end_came_first_is_refused(line: Line) -> None:
    asked = pending.with_end(pending.with_question(line.held), 4)
    assert pending.put(asked, 0, 4, OFFSET) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert pending.put(asked, 0, 3, OFFSET) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert isinstance(pending.put(asked, 0, 5, OFFSET), Change)


async def test_an_end_is_remembered_while_any_question_is_out(line: Line) -> None:
    asked = pending.with_end(pending.with_question(pending.with_question(line.held)), 4)
    one_left = pending.without_question(asked)
    assert pending.put(one_left, 0, 4, OFFSET) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert pending.without_question(one_left) == line.held
    assert pending.with_end(line.held, 4) == line.held


async def test_two_transactions_are_never_pending_in_one_place(line: Line) -> None:
    await line.put({(TOPIC, 0): 1}, number=4)
    assert pending.put(line.held, 0, 5, OFFSET) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("by", ["number", "bytes"])
async def test_what_is_pending_has_a_bound(line: Line, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(pending, *(("OFFSETS_MAX", 2) if by == "number" else ("BYTES_MAX", 200)))
    text = "" if by == "number" else "x" * 80
    offsets = {(TOPIC, number): CommittedOffset(offset=1, commit_ms=1, metadata=text) for number in range(3)}
    assert pending.put(line.held, 0, 1, offsets) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    del offsets[(TOPIC, 0)], offsets[(TOPIC, 1)]
    assert isinstance(pending.put(line.held, 0, 1, offsets), Change)


# --- deletion and readers -------------------------------------------------------------------------


async def test_deleted_offsets_are_no_longer_pending(line: Line) -> None:
    await line.put({(TOPIC, 0): 1, (TOPIC, 1): 2})
    await line.commit((TOPIC, 0), 9)
    assert pending.without(line.held, {(OTHER, 0)}) is None
    await line.make(pending.without(line.held, {(TOPIC, 1)}))
    await line.end(commit=True)
    assert [await line.offset((TOPIC, number)) for number in range(2)] == [9, None]


async def test_the_key_goes_with_the_last_deleted_offset(line: Line) -> None:
    await line.put({(TOPIC, 0): 1})
    await line.make(pending.without(line.held, {(TOPIC, 0)}))
    assert await line.etcd.get(line.held.place.key) is None
    assert pending.without(line.held, {(TOPIC, 0)}) is None


async def test_partitions_with_a_pending_offset_are_unstable(line: Line) -> None:
    await line.put({(TOPIC, 0): 1, (OTHER, 1): 2})
    kv = await line.etcd.get(line.held.place.key)
    assert kv is not None
    assert decode_pending(kv.value) == line.held.value
    found = pending.unstable([line.held])
    assert [where in found for where in ((TOPIC, 0), (OTHER, 1), (TOPIC, 1))] == [True, True, False]
    assert pending.unstable([]) == Unstable(frozenset(), False)


async def test_a_damaged_value_makes_the_whole_group_unstable_and_goes_with_it(line: Line) -> None:
    await line.etcd.put(line.held.place.key, b"\xff")
    kv = await line.etcd.get(line.held.place.key)
    assert kv is not None
    with pytest.raises(CorruptValue):
        pending.loaded(line.held.place, kv)
    line.held = pending.unreadable(line.held.place, kv)
    assert (TOPIC, 0) in pending.unstable([line.held])
    await line.make(pending.dropped(line.held))
    assert await line.etcd.get(line.held.place.key) is None
    assert line.held == Pending(place=line.held.place)


async def test_all_that_is_pending_goes_with_the_group(line: Line) -> None:
    await line.put({(TOPIC, 0): 1, (OTHER, 1): 2})
    await line.make(pending.dropped(line.held))
    assert await line.etcd.get(line.held.place.key) is None
    assert pending.dropped(line.held) is None


async def test_a_change_says_which_partitions_it_concerns(line: Line) -> None:
    await line.put({(TOPIC, number): number for number in range(MOVED_TOGETHER + 1)})
    first = pending.end(line.held, 1, commit=True)
    assert first is not None
    assert first.where == {(TOPIC, number) for number in range(MOVED_TOGETHER)}
    await line.make(first)
    last = pending.end(line.held, 1, commit=True)
    assert last is not None
    assert last.where == {(TOPIC, MOVED_TOGETHER)}
