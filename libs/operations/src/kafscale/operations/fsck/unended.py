"""Transactions that nobody will end: open in a partition, or with offsets pending in a group.

    A transaction that is open in a head, or has offsets pending, is one that the record of its transactional id has
    under way, or closing and still awaits there. Otherwise no end comes: readers of committed records stop before it
    for ever, and consumers of the group wait for ever.

The records are read after the heads and the pending offsets. A record names a participant before the participant has
anything, and until it has nothing. So what was there before the records were read, is in no record, and is still there
after that, hangs. A number is never used again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kafscale.log.heads import Head, OpenTransaction, decode_head
from kafscale.operations.fsck.checks import Problem
from kafscale.storage.etcd.client import EtcdClient, KeyValue, Range
from kafscale.storage.keys import Keyspace, PartitionKey, UnknownKey
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic
from kafscale.storage.transactions import (
    Participant,
    PendingOffsets,
    TransactionState,
    decode_pending,
    decode_transaction,
)

RECORDS_PER_PAGE = 40
"""A value has at most 1.5 MiB (etcd's limit), and a response of etcd at most 64 MiB."""


class Open(NamedTuple):
    """In a head of a topic that was active."""

    topic: Topic
    partition: int
    found: OpenTransaction

    @property
    def where(self) -> PartitionKey:
        return self.topic.topic_id, self.partition


class Records:
    """What the records of transactional ids say is under way or awaited."""

    def __init__(self, states: Iterable[TransactionState]) -> None:
        self._known: dict[tuple[int, int], set[Participant]] = defaultdict(set)
        for state in states:
            if state.current is not None:
                self._known[(state.producer_id, state.number)] |= {*state.current}
            if (closing := state.closing) is not None:
                self._known[(closing.producer_id, closing.number)] |= {*closing.awaited}

    def has(self, producer_id: int, number: int, participant: Participant) -> bool:
        return participant in self._known.get((producer_id, number), ())


class UnendedCheck:
    """`note` each head, then `run`."""

    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self._etcd = etcd
        self._keys = keys
        self._open: list[Open] = []
        self._problems: list[Problem] = []

    def note(self, topic: Topic, partition: int, head: Head) -> None:
        self._open += [Open(topic, partition, each) for each in head.open]

    async def run(self) -> list[Problem]:
        pending = await self._pending()
        records = await self._records()
        if records is None:
            return self._problems  # an unreadable record may be that of any of these
        for each in self._open:
            found = each.found
            if not records.has(found.producer_id, found.number, each.where) and await self._is_open(each):
                self._problem(
                    f"{each.topic.name}/{each.partition}",
                    f"transaction {found.number} of producer {found.producer_id} is open at {found.first}, "
                    "and no transactional id has it: it hangs",
                )
        for kv, value in pending:
            if not records.has(value.producer_id, value.number, value.group) and await self._is_there(kv):
                self._problem(
                    f"group {value.group}",
                    f"transaction {value.number} of producer {value.producer_id} has {len(value.offsets)} offsets "
                    "pending, and no transactional id has it: they are stuck",
                )
        return self._problems

    async def _pending(self) -> list[tuple[KeyValue, PendingOffsets]]:
        found: list[tuple[KeyValue, PendingOffsets]] = []
        async for kv in self._etcd.each(self._keys.pendings_prefix(), page_keys=RECORDS_PER_PAGE):
            try:
                _, group, producer_id = self._keys.parse_pending(kv.key)
                value = decode_pending(kv.value)
            except (UnreadableValue, UnknownKey, ValueError) as broken:
                self._problem(kv.key.decode(errors="replace"), str(broken))
                continue
            if (value.group, value.producer_id) != (group, producer_id):
                self._problem(kv.key.decode(errors="replace"), "the value names another group or producer")
            found.append((kv, value))
        return found

    async def _records(self) -> Records | None:
        """None: some record cannot be read."""
        states: list[TransactionState] = []
        are_whole = True
        async for kv in self._etcd.each(self._keys.transactions_prefix(), page_keys=RECORDS_PER_PAGE):
            try:
                states.append(decode_transaction(kv.value))
            except UnreadableValue as broken:
                self._problem(kv.key.decode(errors="replace"), str(broken))
                are_whole = False
        return Records(states) if are_whole else None

    async def _is_open(self, each: Open) -> bool:
        """Still, in a topic that is neither deleted nor changed."""
        heads, topics = await self._etcd.ranges(
            [Range(self._keys.head(*each.where)), Range(self._keys.topic(each.topic.name))]
        )
        if [kv.mod_revision for kv in topics.kvs] != [each.topic.mod_revision]:
            return False
        return any(each.found in decode_head(kv.value).open for kv in heads.kvs)

    async def _is_there(self, kv: KeyValue) -> bool:
        """Still, and not written again."""
        now = await self._etcd.get(kv.key)
        return now is not None and now.mod_revision == kv.mod_revision

    def _problem(self, where: str, what: str) -> None:
        self._problems.append(Problem(where, what))
