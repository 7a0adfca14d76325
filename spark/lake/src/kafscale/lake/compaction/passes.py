"""The positions of unfinished passes, as etcd keeps them: the next round resumes there.

A pass takes the newest keys of the dirty part up to an end, rewrites the clean part with them, and then the dirty part.
If the time of a round is not enough, the position is recorded with that end. The next round reads the keys again up to
the same end, and resumes at the position. A value that cannot be read costs one pass from the start of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.lake.catalog import Lake, Log
from kafscale.log.heads import Seg
from kafscale.storage.etcd.client import Compare, Put, Txn
from kafscale.storage.job_runs import CompactionPass, decode_compaction_pass, encode_compaction_pass
from kafscale.storage.schema import UnreadableValue

REMEMBER_BYTES: Final = 64 << 20
"""Bytes processed between two records of the position. A round that is killed repeats no more than this."""


async def read_pass(lake: Lake, log: Log) -> CompactionPass | None:
    """The unfinished pass of the log, if any. Raises EtcdError."""
    kv = await lake.etcd.get(lake.keys.compaction_pass(log.topic.topic_id, log.partition))
    if kv is None:
        return None
    try:
        return decode_compaction_pass(kv.value)
    except UnreadableValue:
        return None


class Position:
    """The position of a round in the pass of a log from `begin` to `end`. Every method raises EtcdError."""

    def __init__(self, lake: Lake, log: Log, *, begin: int, end: int) -> None:
        self._lake = lake
        self._log = log
        self.begin = begin
        self._next = begin
        self._end = end
        self._unsaved_bytes = 0
        self._saved = False

    async def reached(self, group: Sequence[Seg], now_ms: int) -> None:
        """The group is done."""
        self._next = group[-1].end
        self._unsaved_bytes += sum(seg.size for seg in group)
        if self._unsaved_bytes >= REMEMBER_BYTES:
            await self.leave(now_ms)

    async def leave(self, now_ms: int) -> None:
        """Records the position, unless nothing was done or the log is gone."""
        if self._next == self.begin:
            return
        where = (self._log.topic.topic_id, self._log.partition)
        left = CompactionPass(next=self._next, end=self._end, left_ms=now_ms)
        put = Put(self._lake.keys.compaction_pass(*where), encode_compaction_pass(left))
        standing = Compare(self._lake.keys.head(*where), "create", "=", self._log.head_created)
        await self._lake.etcd.txn(Txn(compare=(standing,), success=(put,)))
        self._saved, self._unsaved_bytes = True, 0

    async def finish(self, *, known: bool) -> None:
        """The pass is complete. `known`: etcd may have a position of it."""
        if known or self._saved:
            key = self._lake.keys.compaction_pass(self._log.topic.topic_id, self._log.partition)
            await self._lake.etcd.delete(key)
