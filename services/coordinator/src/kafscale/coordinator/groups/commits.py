"""Committed offsets in etcd: written under the claim of the slot, read with proof that it stands.

The laws. Commits of one group are written in the order they were let in; those that come while one is on
its way share the next transaction, the last offset of each partition wins, and each is acknowledged after
the transaction that holds it. Nothing is cached: a read is linearizable and compares the claim, so that
neither a zombie nor a cold successor ever answers an old offset. Nothing is written under a lost claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kafscale.coordinator.slots import Held
from kafscale.runtime.committer import Answer, Committer, Settled
from kafscale.storage.claims import range_at
from kafscale.storage.etcd import Delete, EtcdClient, EtcdUnknown, KeyValue, Put, Range, Txn
from kafscale.storage.groups import CommittedOffset, decode_committed, encode_committed
from kafscale.storage.keys import Keyspace, TopicId, prefix_end
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

CHANGES_PER_TXN_MAX = 100
KEYS_WAITING_MAX = 100_000
"""Of one group; more commits are refused until these are written."""

TopicPartition = tuple[TopicId, int]
Change = Put | Delete


@dataclass(slots=True)
class _Line:
    """The changes of one group that wait for the transaction before them."""

    changes: dict[bytes, Change] = field(default_factory=dict)
    waiting: list[asyncio.Future[ErrorCode]] = field(default_factory=list)


class Commits:
    """See the module's law. `fenced` hears of a claim that was lost."""

    def __init__(
        self,
        etcd: EtcdClient,
        keyspace: Keyspace,
        committer: Committer,
        fenced: Callable[[Held], None],
    ) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._committer = committer
        self._fenced = fenced
        self._lines: dict[tuple[Held, str], _Line] = {}

    async def write(
        self, held: Held, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> ErrorCode:
        """NONE once they are in etcd; NOT_COORDINATOR when the slot is another's."""
        return await self._change(
            held,
            group,
            {
                (key := self._keyspace.committed(held.slot_id, group, *where)): Put(
                    key, encode_committed(offset)
                )
                for where, offset in offsets.items()
            },
        )

    async def delete(self, held: Held, group: str, where: Iterable[TopicPartition]) -> ErrorCode:
        keys = [self._keyspace.committed(held.slot_id, group, *each) for each in where]
        return await self._change(held, group, {key: Delete(key) for key in keys})

    async def delete_all(self, held: Held, group: str) -> ErrorCode:
        """With the group itself: every offset under its id."""
        prefix = self._keyspace.commits_prefix(held.slot_id, group)
        return await self._change(held, group, {prefix: Delete(prefix, prefix_end(prefix))})

    async def read(self, held: Held, group: str) -> Mapping[TopicPartition, CommittedOffset] | ErrorCode:
        """All offsets of the group, as of now."""
        found = await self._read(held, self._keyspace.commits_prefix(held.slot_id, group))
        if isinstance(found, ErrorCode):
            return found
        offsets = {}
        for kv in found:
            _, _, topic_id, partition = self._keyspace.parse_committed(kv.key)
            offsets[(topic_id, partition)] = decode_committed(kv.value)
        return offsets

    async def read_slot(
        self, held: Held
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]] | ErrorCode:
        """Those of every group in the slot, for the upkeep."""
        found = await self._read(held, self._keyspace.commits_prefix(held.slot_id))
        if isinstance(found, ErrorCode):
            return found
        groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for kv in found:
            _, group, topic_id, partition = self._keyspace.parse_committed(kv.key)
            groups.setdefault(group, {})[(topic_id, partition)] = decode_committed(kv.value)
        return groups

    async def _read(self, held: Held, prefix: bytes) -> tuple[KeyValue, ...] | ErrorCode:
        txn = Txn(
            compare=(slot_fence(self._keyspace, held.slot_id, held.revision),),
            success=(Range(prefix, prefix_end(prefix)),),
        )
        try:
            result = await self._etcd.txn(txn)
        except EtcdUnknown:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not result.succeeded:
            self._fenced(held)
            return ErrorCode.NOT_COORDINATOR
        return tuple(range_at(result, 0).kvs)

    # -- writing in order -----------------------------------------------------------------------

    async def _change(self, held: Held, group: str, changes: Mapping[bytes, Change]) -> ErrorCode:
        if not changes:
            return ErrorCode.NONE
        line = self._lines.get((held, group))
        on_its_way = line is not None
        if line is None:
            line = self._lines[(held, group)] = _Line()
        if len(line.changes) + len(changes) > KEYS_WAITING_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for key, change in changes.items():
            line.changes.pop(key, None)  # what is written last goes last
            line.changes[key] = change
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        line.waiting.append(answer)
        if not on_its_way:
            self._send(held, group, line)
        return await answer

    def _send(self, held: Held, group: str, line: _Line) -> None:
        """Everything that waits, in as many transactions as etcd's limits need, one after another."""
        changes, line.changes = list(line.changes.values()), {}
        waiting, line.waiting = line.waiting, []
        self._send_from(held, group, changes, waiting)

    def _send_from(
        self, held: Held, group: str, changes: list[Change], waiting: list[asyncio.Future[ErrorCode]]
    ) -> None:
        size = _together(changes)
        now, rest = changes[:size], changes[size:]

        def done(answer: Answer) -> None:
            error = self._judge(held, answer)
            if error is ErrorCode.NONE and rest:
                self._send_from(held, group, rest, waiting)
                return
            for each in waiting:
                if not each.done():
                    each.set_result(error)
            self._next(held, group)

        txn = Txn(compare=(slot_fence(self._keyspace, held.slot_id, held.revision),), success=tuple(now))
        self._committer.submit(txn, done, key=self._keyspace.commits_prefix(held.slot_id, group))

    def _next(self, held: Held, group: str) -> None:
        line = self._lines[(held, group)]
        if line.waiting:
            self._send(held, group, line)
        else:
            del self._lines[(held, group)]

    def _judge(self, held: Held, answer: Answer) -> ErrorCode:
        if not isinstance(answer, Settled):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if answer.result.succeeded:
            return ErrorCode.NONE
        self._fenced(held)
        return ErrorCode.NOT_COORDINATOR


def _together(changes: list[Change]) -> int:
    """How many of the first changes may share a transaction; etcd wants a deleted range to be alone."""
    for number, change in enumerate(changes[:CHANGES_PER_TXN_MAX]):
        if isinstance(change, Delete) and change.range_end is not None:
            return max(number, 1)
    return min(len(changes), CHANGES_PER_TXN_MAX)
