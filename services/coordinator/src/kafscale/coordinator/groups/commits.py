"""Committed offsets in etcd: written under the claim of the slot, read with proof that it stands.

The laws. Commits of one group are written in the order they were let in; those that come while one is on
its way share the next transaction, the last offset of each partition wins, and each is acknowledged after
the transaction that holds it. One whose client has gone before it was sent is not sent. Nothing is cached:
a read is linearizable and compares the claim, so that neither a zombie nor a cold successor ever answers an
old offset. Members read what came before them (`settled`): who gives a partition up may commit and say so
without waiting for an answer, and the next owner must not begin before that commit. Nothing is written under a
lost claim. What expires goes only as it was read (`expire`): a commit that came meanwhile stays. An offset that
this version cannot read is told apart from one that was never committed, and stays until somebody commits in its
place.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog
from kafscale.coordinator.slots import Held
from kafscale.runtime.committer import Answer, Committer, Settled
from kafscale.storage.claims import range_at
from kafscale.storage.etcd.client import Compare, Delete, EtcdClient, EtcdError, KeyValue, Put, Range, Txn
from kafscale.storage.groups import CommittedOffset, decode_committed, encode_committed
from kafscale.storage.keys import Keyspace, TopicId, UnknownKey, prefix_end
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

CHANGES_PER_TXN_MAX = 100
CHANGES_BYTES_MAX = 512 << 10
KEYS_WAITING_MAX = 100_000
"""Of one group; more commits are refused until these are written."""

OFFSETS_PER_PAGE = 500
"""Of one read: 4 MiB with the longest group ids and as much metadata as clients may send by default."""
UNREADABLE_TOLD_MAX = 1_000

TopicPartition = tuple[TopicId, int]
Write = Put | Delete


@dataclass(frozen=True, slots=True)
class UnreadableOffset:
    """Something was committed; it is damaged, or a newer version wrote it."""


class Stored(NamedTuple):
    """An offset as it was read."""

    offset: CommittedOffset | UnreadableOffset
    revision: int


class Page(NamedTuple):
    """Offsets by group, in the order of their keys. `rest`: where to go on, None at the end."""

    groups: Mapping[str, Mapping[TopicPartition, Stored]]
    rest: bytes | None


class _Waiter(NamedTuple):
    answer: asyncio.Future[ErrorCode]
    changes: Mapping[bytes, Write]


@dataclass(slots=True)
class _Line:
    """Who waits for the transaction before theirs, of one group."""

    waiting: list[_Waiter] = field(default_factory=list)
    keys: int = 0


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
        self._told: set[tuple[bytes, int]] = set()
        self.unreadable_met = 0
        """Times that an offset was read and could not be decoded."""
        self._order_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def order_lock(self, group: str) -> asyncio.Lock:
        """Held from a commit's arrival until it is in line, so that none overtakes another that has to look
        a topic up first. Whoever deletes a group holds it from the question whether it is empty until its
        offsets are in line to go: a commit that the group let in is deleted with it, and one that comes later
        makes the group anew. None is left without its group."""
        lock = self._order_locks.get(group)
        if lock is None:
            lock = self._order_locks[group] = asyncio.Lock()
        return lock

    def is_writing(self, held: Held, group: str) -> bool:
        """Something of the group is on its way into etcd, and not to be read yet."""
        return (held, group) in self._lines

    def write(
        self, held: Held, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> asyncio.Future[ErrorCode]:
        """In line when this returns. NONE once they are in etcd; NOT_COORDINATOR when the slot is another's."""
        return self._change(
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

    async def expire(self, held: Held, group: str, due: Mapping[TopicPartition, Stored]) -> bool:
        """Deletes them as they were read; False when one was committed anew, and nothing is deleted of those
        that shared its transaction."""
        all_gone = True
        where = list(due)
        for start in range(0, len(where), CHANGES_PER_TXN_MAX // 2):
            part = where[start : start + CHANGES_PER_TXN_MAX // 2]
            keys = [self._keyspace.committed(held.slot_id, group, *each) for each in part]
            unchanged = [
                Compare(key, "mod", "=", due[each].revision) for key, each in zip(keys, part, strict=True)
            ]
            txn = Txn(
                compare=(slot_fence(self._keyspace, held.slot_id, held.revision), *unchanged),
                success=tuple(map(Delete, keys)),
            )
            key = self._keyspace.commits_prefix(held.slot_id, group)
            answer = await self._committer.ask(txn, key=key)
            all_gone &= isinstance(answer, Settled) and answer.result.succeeded
        return all_gone

    def delete_all(self, held: Held, group: str) -> asyncio.Future[ErrorCode]:
        """With the group itself: every offset under its id. In line when this returns."""
        prefix = self._keyspace.commits_prefix(held.slot_id, group)
        return self._change(held, group, {prefix: Delete(prefix, prefix_end(prefix))})

    async def settled(self, held: Held, group: str) -> None:
        """Returns once each commit of the group that has come by now is in etcd, or was refused."""
        async with self.order_lock(group):
            line = self._lines.get((held, group))
            if line is None:
                return
            settled: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            line.waiting.append(_Waiter(settled, {}))
        await settled

    async def read(
        self, held: Held, group: str
    ) -> Mapping[TopicPartition, CommittedOffset | UnreadableOffset] | ErrorCode:
        """All offsets of the group; each as of a time during the call."""
        prefix = self._keyspace.commits_prefix(held.slot_id, group)
        offsets: dict[TopicPartition, CommittedOffset | UnreadableOffset] = {}
        start: bytes | None = prefix
        while start is not None:
            page = await self._page(held, start, prefix)
            if isinstance(page, ErrorCode):
                return page
            found = page.groups.get(group, {})
            offsets.update((where, stored.offset) for where, stored in found.items())
            start = page.rest
        return offsets

    async def read_page(self, held: Held, start: bytes | None = None) -> Page | ErrorCode:
        """Some offsets of the slot's groups, for the upkeep; a group may go on in the next page."""
        prefix = self._keyspace.commits_prefix(held.slot_id)
        return await self._page(held, start or prefix, prefix)

    async def _page(self, held: Held, start: bytes, prefix: bytes) -> Page | ErrorCode:
        txn = Txn(
            compare=(slot_fence(self._keyspace, held.slot_id, held.revision),),
            success=(Range(start, prefix_end(prefix), limit=OFFSETS_PER_PAGE),),
        )
        try:
            result = await self._etcd.txn(txn)
        except EtcdError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not result.succeeded:
            self._fenced(held)
            return ErrorCode.NOT_COORDINATOR
        found = range_at(result, 0)
        groups: dict[str, dict[TopicPartition, Stored]] = {}
        for kv in found.kvs:
            self._note(groups, kv)
        return Page(groups, found.kvs[-1].key + b"\0" if found.more else None)

    def _note(self, groups: dict[str, dict[TopicPartition, Stored]], kv: KeyValue) -> None:
        offset: CommittedOffset | UnreadableOffset
        try:
            _, group, topic_id, partition = self._keyspace.parse_committed(kv.key)
        except (UnknownKey, ValueError) as error:
            self._complain(kv, error)
            return
        try:
            offset = decode_committed(kv.value)
        except UnreadableValue as error:
            self._complain(kv, error)
            offset = UnreadableOffset()
        groups.setdefault(group, {})[(topic_id, partition)] = Stored(offset, kv.mod_revision)

    def _complain(self, kv: KeyValue, error: Exception) -> None:
        """Once, as clients ask for it again and again."""
        self.unreadable_met += 1
        told = (kv.key, kv.mod_revision)
        if told not in self._told:
            if len(self._told) >= UNREADABLE_TOLD_MAX:
                self._told.clear()
            self._told.add(told)
            log.error("committed offset unreadable", key=repr(kv.key), why=str(error))

    # -- writing in order -----------------------------------------------------------------------

    def _change(self, held: Held, group: str, changes: Mapping[bytes, Write]) -> asyncio.Future[ErrorCode]:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        if not changes:
            answer.set_result(ErrorCode.NONE)
            return answer
        line = self._lines.get((held, group))
        on_its_way = line is not None
        if line is None:
            line = self._lines[(held, group)] = _Line()
        if on_its_way and line.keys + len(changes) > KEYS_WAITING_MAX:
            answer.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return answer
        line.waiting.append(_Waiter(answer, changes))
        line.keys += len(changes)
        if not on_its_way:
            self._next(held, group)
        return answer

    def _next(self, held: Held, group: str) -> None:
        """Everything that waits and is still wanted, in as many transactions as etcd's limits need."""
        line = self._lines[(held, group)]
        wanted = [waiter for waiter in line.waiting if not waiter.answer.done()]
        line.waiting, line.keys = [], 0
        changes: dict[bytes, Write] = {}
        for waiter in wanted:
            for key, change in waiter.changes.items():
                changes.pop(key, None)  # what is written last goes last
                changes[key] = change
        if not changes:
            del self._lines[(held, group)]
            for waiter in wanted:
                waiter.answer.set_result(ErrorCode.NONE)
            return
        self._send_from(held, group, list(changes.values()), [waiter.answer for waiter in wanted])

    def _send_from(
        self, held: Held, group: str, changes: list[Write], waiting: list[asyncio.Future[ErrorCode]]
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

    def _judge(self, held: Held, answer: Answer) -> ErrorCode:
        if not isinstance(answer, Settled):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if answer.result.succeeded:
            return ErrorCode.NONE
        self._fenced(held)
        return ErrorCode.NOT_COORDINATOR


def _together(changes: list[Write]) -> int:
    """How many of the first changes may share a transaction; etcd wants a deleted range to be alone."""
    room = CHANGES_BYTES_MAX
    for number, change in enumerate(changes[:CHANGES_PER_TXN_MAX]):
        if isinstance(change, Delete) and change.range_end is not None:
            return max(number, 1)
        room -= len(change.key) + (len(change.value) if isinstance(change, Put) else 0)
        if room < 0:
            return max(number, 1)
    return min(len(changes), CHANGES_PER_TXN_MAX)
