"""Committed offsets in etcd. Every write and every read compares the claim of the group's slot.

The laws:

- Commits of one group are written in order of arrival. Commits that arrive during a write share the next transaction,
  in which the last offset of each partition wins. Each commit is acknowledged after its transaction. A commit whose
  client leaves before it is sent is not sent.
- Nothing is cached. A read is linearizable and compares the claim, so neither a stale owner nor a new one returns an
  old offset.
- A read waits for the commits that arrived before it (`settled`). A member may commit and give up a partition without
  waiting for the reply, and the next owner must not start before that commit.
- Nothing is written under a lost claim.
- An offset expires only if it has not changed since it was read (`expire`), so a newer commit stays.
- An offset that this version cannot read is not treated as absent. It stays until a commit replaces it.
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
from kafscale.storage.etcd.client import Compare, Delete, EtcdClient, EtcdError, KeyValue, Put, Range, Txn
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.groups import CommittedOffset, decode_committed, encode_committed
from kafscale.storage.keys import Keyspace, PartitionKey, UnknownKey, prefix_end
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

CHANGES_PER_TXN_MAX = 100
CHANGES_BYTES_MAX = 512 << 10
KEYS_WAITING_MAX = 100_000
"""Of one group. More commits are refused until these are written."""

OFFSETS_PER_PAGE = 500
"""Of one read: at most 4 MiB, with the longest group ids and the default limit of metadata."""
UNREADABLE_LOGGED_MAX = 1_000

Write = Put | Delete


@dataclass(frozen=True, slots=True)
class UnreadableOffset:
    """A committed offset that is damaged, or that a newer version wrote."""


class Stored(NamedTuple):
    """An offset and the mod_revision of its key."""

    offset: CommittedOffset | UnreadableOffset
    revision: int


class Page(NamedTuple):
    """Offsets by group, in key order. `rest`: the first key of the next page, None at the end."""

    groups: Mapping[str, Mapping[PartitionKey, Stored]]
    rest: bytes | None


class _Waiter(NamedTuple):
    answer: asyncio.Future[ErrorCode]
    changes: Mapping[bytes, Write]


@dataclass(slots=True)
class _Queue:
    """The commits of one group that wait for the present transaction."""

    waiting: list[_Waiter] = field(default_factory=list)
    keys: int = 0


class Commits:
    """See the module's laws. `fenced` is called with a lost claim."""

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
        self._queues: dict[tuple[Held, str], _Queue] = {}
        self._logged: set[tuple[bytes, int]] = set()
        self.unreadable_met = 0
        """How often an offset was read that could not be decoded."""
        self._order_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def order_lock(self, group: str) -> asyncio.Lock:
        """Keeps the commits of a group in order of arrival.

        A commit holds it from its arrival until it is queued, so no commit overtakes one that must look up a topic.
        A deletion of the group holds it from the check that the group is empty until the delete of its offsets is
        queued. So an earlier commit is deleted with the group, and a later one creates the group again.
        """
        lock = self._order_locks.get(group)
        if lock is None:
            lock = self._order_locks[group] = asyncio.Lock()
        return lock

    def is_writing(self, held: Held, group: str) -> bool:
        """Whether a write of the group's offsets is queued or in progress."""
        return (held, group) in self._queues

    def write(
        self, held: Held, group: str, offsets: Mapping[PartitionKey, CommittedOffset]
    ) -> asyncio.Future[ErrorCode]:
        """Queued when this returns. NONE after the write; NOT_COORDINATOR if another instance has the slot."""
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

    async def delete(self, held: Held, group: str, where: Iterable[PartitionKey]) -> ErrorCode:
        keys = [self._keyspace.committed(held.slot_id, group, *each) for each in where]
        return await self._change(held, group, {key: Delete(key) for key in keys})

    async def expire(self, held: Held, group: str, due: Mapping[PartitionKey, Stored]) -> bool:
        """Deletes offsets that have not changed since they were read. False if one has changed: then the other offsets
        of its transaction are not deleted either."""
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
        """Deletes every offset of the group. Queued when this returns."""
        prefix = self._keyspace.commits_prefix(held.slot_id, group)
        return self._change(held, group, {prefix: Delete(prefix, prefix_end(prefix))})

    async def settled(self, held: Held, group: str) -> None:
        """Returns after each commit of the group that has arrived by now is written or refused."""
        async with self.order_lock(group):
            queue = self._queues.get((held, group))
            if queue is None:
                return
            settled: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            queue.waiting.append(_Waiter(settled, {}))
        await settled

    async def read(
        self, held: Held, group: str
    ) -> Mapping[PartitionKey, CommittedOffset | UnreadableOffset] | ErrorCode:
        """All offsets of the group. Each is its value at some time during the call."""
        prefix = self._keyspace.commits_prefix(held.slot_id, group)
        offsets: dict[PartitionKey, CommittedOffset | UnreadableOffset] = {}
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
        """One page of the offsets of all groups in the slot. A group may continue in the next page."""
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
        groups: dict[str, dict[PartitionKey, Stored]] = {}
        for kv in found.kvs:
            self._note(groups, kv)
        return Page(groups, found.kvs[-1].key + b"\0" if found.more else None)

    def _note(self, groups: dict[str, dict[PartitionKey, Stored]], kv: KeyValue) -> None:
        offset: CommittedOffset | UnreadableOffset
        try:
            _, group, topic_id, partition = self._keyspace.parse_committed(kv.key)
        except (UnknownKey, ValueError) as error:
            self._log_unreadable(kv, error)
            return
        try:
            offset = decode_committed(kv.value)
        except UnreadableValue as error:
            self._log_unreadable(kv, error)
            offset = UnreadableOffset()
        groups.setdefault(group, {})[(topic_id, partition)] = Stored(offset, kv.mod_revision)

    def _log_unreadable(self, kv: KeyValue, error: Exception) -> None:
        """Logs each unreadable value once, because clients retry."""
        self.unreadable_met += 1
        seen = (kv.key, kv.mod_revision)
        if seen not in self._logged:
            if len(self._logged) >= UNREADABLE_LOGGED_MAX:
                self._logged.clear()
            self._logged.add(seen)
            log.error("committed offset unreadable", key=repr(kv.key), why=str(error))

    # -- writing in order -----------------------------------------------------------------------

    def _change(self, held: Held, group: str, changes: Mapping[bytes, Write]) -> asyncio.Future[ErrorCode]:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        if not changes:
            answer.set_result(ErrorCode.NONE)
            return answer
        queue = self._queues.get((held, group))
        in_progress = queue is not None
        if queue is None:
            queue = self._queues[(held, group)] = _Queue()
        if in_progress and queue.keys + len(changes) > KEYS_WAITING_MAX:
            answer.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return answer
        queue.waiting.append(_Waiter(answer, changes))
        queue.keys += len(changes)
        if not in_progress:
            self._next(held, group)
        return answer

    def _next(self, held: Held, group: str) -> None:
        """Writes all waiting commits whose clients still wait, in as many transactions as etcd's limits need."""
        queue = self._queues[(held, group)]
        wanted = [waiter for waiter in queue.waiting if not waiter.answer.done()]
        queue.waiting, queue.keys = [], 0
        changes: dict[bytes, Write] = {}
        for waiter in wanted:
            for key, change in waiter.changes.items():
                changes.pop(key, None)  # the last change of a key is written last
                changes[key] = change
        if not changes:
            del self._queues[(held, group)]
            for waiter in wanted:
                waiter.answer.set_result(ErrorCode.NONE)
            return
        self._send_from(held, group, list(changes.values()), [waiter.answer for waiter in wanted])

    def _send_from(
        self, held: Held, group: str, changes: list[Write], waiting: list[asyncio.Future[ErrorCode]]
    ) -> None:
        size = _txn_size(changes)
        now, rest = changes[:size], changes[size:]

        def done(answer: Answer) -> None:
            error = self._error_of(held, answer)
            if error is ErrorCode.NONE and rest:
                self._send_from(held, group, rest, waiting)
                return
            for each in waiting:
                if not each.done():
                    each.set_result(error)
            self._next(held, group)

        txn = Txn(compare=(slot_fence(self._keyspace, held.slot_id, held.revision),), success=tuple(now))
        self._committer.submit(txn, done, key=self._keyspace.commits_prefix(held.slot_id, group))

    def _error_of(self, held: Held, answer: Answer) -> ErrorCode:
        if not isinstance(answer, Settled):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if answer.result.succeeded:
            return ErrorCode.NONE
        self._fenced(held)
        return ErrorCode.NOT_COORDINATOR


def _txn_size(changes: list[Write]) -> int:
    """How many of the first changes may share a transaction. etcd needs the delete of a range to be alone."""
    room = CHANGES_BYTES_MAX
    for number, change in enumerate(changes[:CHANGES_PER_TXN_MAX]):
        if isinstance(change, Delete) and change.range_end is not None:
            return max(number, 1)
        room -= len(change.key) + (len(change.value) if isinstance(change, Put) else 0)
        if room < 0:
            return max(number, 1)
    return min(len(changes), CHANGES_PER_TXN_MAX)
