"""Committed offsets in etcd. Every write and every read compares the claim of the group's slot.

The laws:

- Commits of one group are written in order of arrival (`line`). Commits that arrive during a write share the next
  transaction. Each commit is acknowledged after its transaction.
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
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from kafscale.coordinator.groups.line import CHANGES_PER_TXN_MAX, Lines, Step
from kafscale.coordinator.slots import Held
from kafscale.runtime.committer import Settled
from kafscale.storage.etcd.client import Compare, Delete, EtcdClient, EtcdError, KeyValue, Put, Range, Txn
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.groups import CommittedOffset, decode_committed, encode_committed
from kafscale.storage.keys import Keyspace, PartitionKey, UnknownKey, prefix_end
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

OFFSETS_PER_PAGE = 500
"""Of one read: at most 4 MiB, with the longest group ids and the default limit of metadata."""
UNREADABLE_LOGGED_MAX = 1_000


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


class _Expiry:
    """A turn that deletes offsets that have not changed since they were read. Its answer is NONE or INVALID_REQUEST."""

    def __init__(
        self, keyspace: Keyspace, held: Held, group: str, due: Mapping[PartitionKey, Stored]
    ) -> None:
        revisions = {keyspace.committed(held.slot_id, group, *each): due[each].revision for each in due}
        unchanged = [Compare(key, "mod", "=", revision) for key, revision in revisions.items()]
        self._step = Step(
            Txn(
                compare=(slot_fence(keyspace, held.slot_id, held.revision), *unchanged),
                success=tuple(map(Delete, revisions)),
            ),
            frozenset(revisions),
        )
        self._gone: bool | None = None
        self.key = keyspace.commits_prefix(held.slot_id, group)
        self.size = len(revisions)

    def step(self) -> Step | ErrorCode:
        if self._gone is None:
            return self._step
        return ErrorCode.NONE if self._gone else ErrorCode.INVALID_REQUEST

    def made(self, settled: Settled) -> bool:
        """The pass goes on with the next page, which compares the claim."""
        self._gone = settled.result.succeeded
        return True


class Commits:
    """See the module's laws. `fenced` is called with a lost claim."""

    def __init__(
        self, etcd: EtcdClient, keyspace: Keyspace, lines: Lines, fenced: Callable[[Held], None]
    ) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._lines = lines
        self._fenced = fenced
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
        return self._lines.is_busy(held, group)

    def write(
        self, held: Held, group: str, offsets: Mapping[PartitionKey, CommittedOffset]
    ) -> asyncio.Future[ErrorCode]:
        """Queued when this returns. NONE after the write; NOT_COORDINATOR if another instance has the slot."""
        return self._lines.change(
            held,
            group,
            {
                (key := self._keyspace.committed(held.slot_id, group, *where)): Put(
                    key, encode_committed(offset)
                )
                for where, offset in offsets.items()
            },
        )

    def delete(self, held: Held, group: str, where: Iterable[PartitionKey]) -> asyncio.Future[ErrorCode]:
        """Queued when this returns."""
        keys = [self._keyspace.committed(held.slot_id, group, *each) for each in where]
        return self._lines.change(held, group, {key: Delete(key) for key in keys})

    async def expire(self, held: Held, group: str, due: Mapping[PartitionKey, Stored]) -> bool:
        """Deletes offsets that have not changed since they were read. False if one has changed: then the other offsets
        of its transaction are not deleted either."""
        all_gone = True
        where = list(due)
        for start in range(0, len(where), CHANGES_PER_TXN_MAX // 2):
            part = {each: due[each] for each in where[start : start + CHANGES_PER_TXN_MAX // 2]}
            turn = _Expiry(self._keyspace, held, group, part)
            all_gone &= await self._lines.take(held, group, turn) is ErrorCode.NONE
        return all_gone

    def delete_all(self, held: Held, group: str) -> asyncio.Future[ErrorCode]:
        """Deletes every offset of the group. Queued when this returns."""
        prefix = self._keyspace.commits_prefix(held.slot_id, group)
        return self._lines.change(held, group, {prefix: Delete(prefix, prefix_end(prefix))})

    async def settled(self, held: Held, group: str) -> None:
        """Returns after each commit of the group that has arrived by now is written or refused."""
        async with self.order_lock(group):
            settled = self._lines.settled(held, group)
        if settled is not None:
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
