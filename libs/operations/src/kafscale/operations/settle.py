"""Asks the owners to settle, and waits until no head names a slice that was there before.

A request is a key in etcd that all produce instances watch (`kafscale.produce.settle_requests`). Its lease ends after
the deadline, so a command that is killed leaves nothing behind. Heads show the progress. All are read once, in pages,
before the request; then only those that still have old slices. At the end all are read once more: a slice that is
found then is newer than the command, so some instance still writes bundles.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafscale.lake.unknown import NO_TOPIC
from kafscale.log.heads import decode_head
from kafscale.operations.sentences import Progress, Trouble
from kafscale.storage.coordination import decode_owner
from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue, Range
from kafscale.storage.keys import Keyspace, TopicId, UnknownKey
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import decode_topic

LOOK_EVERY_S: Final = 0.5
PAGE_HEADS: Final = 500
HEADS_PER_READ: Final = 60
LEASE_SPARE_S: Final = 30
"""Beyond the deadline, for the reads after the wait."""
LEASE_MAX_S: Final = 9_000_000_000
"""etcd's limit."""
NEWER: Final = "Written since the command began: not all instances run with KAFSCALE_BUNDLE_DIRECT_BYTES=1."


class CannotSettle(Trouble):
    """Nothing was asked for. The text is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A partition with slices, and why they are there."""

    topic: str
    partition: int
    slices: int | None  # None: the head cannot be read
    bytes: int | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    settled: int
    """Partitions that had slices and were settled."""
    left: Sequence[Left]
    """Those that were not, in time."""
    newer: Sequence[Left]
    """Those with slices that were written meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """`end`: the high watermark when the partition was read first. Slices from there on are newer."""

    key: bytes
    end: int
    left: Left


class Settle:
    """See the module's text."""

    def __init__(self, etcd: EtcdClient, keys: Keyspace, progress: Progress) -> None:
        self._etcd = etcd
        self._keys = keys
        self._progress = progress

    async def run(self, topics: Sequence[str], timeout_s: float) -> Outcome:
        """Raises CannotSettle and EtcdError."""
        deadline = time.monotonic() + timeout_s
        topic_ids = await self._topic_ids(topics)
        waiting = await self._look(topic_ids)  # before owners hear of it: what they settle at once counts too
        found = len(waiting)
        if found and not await self._live():
            raise CannotSettle(
                "no produce instance runs, and only the owners of partitions can settle: start the cluster, "
                "with KAFSCALE_BUNDLE_DIRECT_BYTES=1 if no record may go into a bundle after that"
            )
        async with self._request(topics, timeout_s):
            while waiting and time.monotonic() < deadline:
                self._progress("settling", found - len(waiting), found)
                await asyncio.sleep(LOOK_EVERY_S)
                waiting = await self._look_again(waiting)
            settled = found - len(waiting)
            if waiting:
                return Outcome(settled=settled, left=await self._explained(waiting), newer=())
            newer = [replace(each.left, why=each.left.why or NEWER) for each in await self._look(topic_ids)]
            return Outcome(settled=settled, left=(), newer=newer)

    # --- the request ---------------------------------------------------------------------------

    async def _topic_ids(self, topics: Sequence[str]) -> Sequence[TopicId | None]:
        """None stands for all topics."""
        if not topics:
            return (None,)
        ids: list[TopicId | None] = []
        for name in topics:
            found = await self._etcd.get(self._keys.topic(name))
            if found is None:
                raise CannotSettle(f"topic '{name}' {NO_TOPIC}")
            try:
                ids.append(decode_topic(name, found.value).topic_id)
            except UnreadableValue as error:
                raise CannotSettle(f"topic {name}: {error}") from error
        return ids

    @contextlib.asynccontextmanager
    async def _request(self, topics: Sequence[str], timeout_s: float) -> AsyncIterator[None]:
        lease = await self._etcd.lease_grant(min(int(timeout_s) + LEASE_SPARE_S, LEASE_MAX_S))
        try:
            name = uuid.uuid4().hex
            for topic in topics or ("",):
                await self._etcd.put(self._keys.settle_request(name, topic), b"", lease=lease)
            yield
        finally:
            with contextlib.suppress(EtcdError):  # it ends by itself
                await self._etcd.lease_revoke(lease)

    # --- what heads say ------------------------------------------------------------------------

    async def _look(self, topic_ids: Iterable[TopicId | None]) -> list[_Waiting]:
        """Every partition with slices."""
        waiting: list[_Waiting] = []
        for topic_id in topic_ids:
            read = 0
            async for kv in self._etcd.each(self._keys.heads_prefix(topic_id), page_keys=PAGE_HEADS):
                read += 1
                self._progress("reading heads", read, 0)
                found = self._waiting(kv, None)
                if found is not None:
                    waiting.append(found)
        return waiting

    async def _look_again(self, waiting: Sequence[_Waiting]) -> list[_Waiting]:
        """Those that still wait. A head that is gone was that of a deleted topic."""
        still: list[_Waiting] = []
        for at in range(0, len(waiting), HEADS_PER_READ):
            some = waiting[at : at + HEADS_PER_READ]
            results = await self._etcd.ranges([Range(each.key) for each in some])
            for before, result in zip(some, results, strict=True):
                found = self._waiting(result.kvs[0], before.end) if result.kvs else None
                if found is not None:
                    still.append(found)
        return still

    def _waiting(self, kv: KeyValue, end: int | None) -> _Waiting | None:
        """None: it has no slices, or none below `end`."""
        try:
            topic_id, partition = self._keys.parse_head(kv.key)
        except UnknownKey:
            return None
        try:
            head = decode_head(kv.value)
        except UnreadableValue as error:
            left = Left(topic=topic_id.hex(), partition=partition, slices=None, bytes=None, why=str(error))
            return _Waiting(key=kv.key, end=end or 0, left=left)
        end = head.next if end is None else end
        slices = [seg for seg in head.tail if seg.is_slice and seg.base < end]
        if not slices:
            return None
        size = sum(seg.size for seg in slices)
        left = Left(topic=head.topic, partition=partition, slices=len(slices), bytes=size)
        return _Waiting(key=kv.key, end=end, left=left)

    # --- why -------------------------------------------------------------------------------------

    async def _live(self) -> set[str]:
        """The ids of the produce instances."""
        found = await self._etcd.prefix(self._keys.live_prefix("produce"), keys_only=True)
        live: set[str] = set()
        for kv in found.kvs:
            with contextlib.suppress(UnknownKey):
                _, node_id, boot_id = self._keys.parse_live(kv.key)
                live.add(f"{node_id}/{boot_id}")
        return live

    async def _explained(self, waiting: Sequence[_Waiting]) -> list[Left]:
        live, explained = await self._live(), list[Left]()
        for at in range(0, len(waiting), HEADS_PER_READ):
            some = waiting[at : at + HEADS_PER_READ]
            keys = [self._keys.owner(*self._keys.parse_head(each.key)) for each in some]
            results = await self._etcd.ranges([Range(key) for key in keys])
            for each, result in zip(some, results, strict=True):
                why = each.left.why or _why(result.kvs[0].value if result.kvs else None, live)
                explained.append(replace(each.left, why=why))
        return explained


def _why(owner_record: bytes | None, live: set[str]) -> str:
    owner = ""
    if owner_record is not None:
        with contextlib.suppress(UnreadableValue):
            owner = decode_owner(owner_record).owner
    if owner not in live:
        return "No live instance owns it."
    node_id, _, _ = owner.partition("/")
    return f"Produce instance {node_id} owns it and has not settled it: see the log of that instance."
