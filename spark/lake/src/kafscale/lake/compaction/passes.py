"""How far the passes came that a round had to leave, as etcd keeps it: the next round goes on there.

A pass takes the newest keys of the dirty part up to an end, goes with them through the clean part, and then publishes
the dirty one. If a round's time does not pay for all of it, the position is written down with that end; the next round
reads the keys again, no farther than to it, and goes on at the position. A value that cannot be read costs one pass
from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.lake.catalog import Lake, Log
from kafscale.storage.etcd.client import Compare, Put, Txn
from kafscale.storage.heads import Seg
from kafscale.storage.job_runs import CompactionPass, decode_compaction_pass, encode_compaction_pass
from kafscale.storage.schema import UnreadableValue

REMEMBER_BYTES: Final = 64 << 20
"""Gone through before the position is written down again: so much is lost by a round that dies."""


async def read_pass(lake: Lake, log: Log) -> CompactionPass | None:
    """What was left of the log. Raises EtcdError."""
    kv = await lake.etcd.get(lake.keys.compaction_pass(log.topic.topic_id, log.partition))
    if kv is None:
        return None
    try:
        return decode_compaction_pass(kv.value)
    except UnreadableValue:
        return None


class Position:
    """How far a round is in a log's pass, which began at `begin` and goes to `end`. Every method raises EtcdError."""

    def __init__(self, lake: Lake, log: Log, *, begin: int, end: int) -> None:
        self._lake = lake
        self._log = log
        self.begin = begin
        self._next = begin
        self._end = end
        self._unsaved_bytes = 0
        self._saved = False

    async def reached(self, group: Sequence[Seg], now_ms: int) -> None:
        """The group was gone through."""
        self._next = group[-1].end
        self._unsaved_bytes += sum(seg.size for seg in group)
        if self._unsaved_bytes >= REMEMBER_BYTES:
            await self.leave(now_ms)

    async def leave(self, now_ms: int) -> None:
        """Written down, unless nothing was gone through or the log is gone."""
        if self._next == self.begin:
            return
        where = (self._log.topic.topic_id, self._log.partition)
        left = CompactionPass(next=self._next, end=self._end, left_ms=now_ms)
        put = Put(self._lake.keys.compaction_pass(*where), encode_compaction_pass(left))
        standing = Compare(self._lake.keys.head(*where), "create", "=", self._log.head_created)
        await self._lake.etcd.txn(Txn(compare=(standing,), success=(put,)))
        self._saved, self._unsaved_bytes = True, 0

    async def finish(self, *, known: bool) -> None:
        """The pass is at its end. `known`: something may be written down of it."""
        if known or self._saved:
            key = self._lake.keys.compaction_pass(self._log.topic.topic_id, self._log.partition)
            await self._lake.etcd.delete(key)
